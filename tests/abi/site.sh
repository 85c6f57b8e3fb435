#!/bin/sh
# site.sh SOURCE BUILD: the documents make a site, with no link that leads nowhere and no page that its navigation lacks.
set -eu
for tool in mkdocs mandoc python3; do
    command -v "$tool" >/dev/null 2>&1 || { echo "skipped: the site needs $tool"; exit 77; }
done
exec "$1/docs/site/build.sh" "$2"
