#!/bin/sh
# turns.sh BUILD MINUTES [SEED]: slices that come, go, die and are changed at random, on the simulated
# driver, while vgpud is killed, stopped and started again. turns.py says what may not happen.
exec nice -n 10 python3 "$(dirname "$0")/turns.py" "$@"
