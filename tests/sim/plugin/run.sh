#!/bin/sh
# run.sh TEST: by a python3 that has grpcio; a python3 from elsewhere than Debian may come first.
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import grpc' 2>/dev/null; then
        exec "$python" -B "$1"
    fi
done
echo 'skipped: there is no python3-grpcio to be the kubelet with'
exit 77
