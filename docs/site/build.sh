#!/bin/sh
# build.sh [DIRECTORY]: makes the site of the documents in DIRECTORY/site, build/site by default, with MkDocs and mandoc.
#
# The Markdown files are copied to DIRECTORY/site-pages with the tree's own layout, so that their links work there as they
# do in the tree. A manual page becomes a page of the site: a title, and the HTML that mandoc makes. The build fails on
# a link to a page that is missing, on a page that the navigation lacks, and on an anchor that is not there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "${1:-$source/build}"
to=$(cd "${1:-$source/build}" && pwd)
pages=$to/site-pages

# What GitHub reads and MkDocs does not: more words after a fence than the language, lists in lists that are indented by
# three blanks, and a link to a directory. A manual page ends in .md here.
copy_markdown() {
    # shellcheck disable=SC2016 # a fence, not a command
    sed -E -e 's/^```([a-z]+) .*/```\1/' \
        -e 's/^ {3}([0-9]+\. )/    \1/' \
        -e 's/\]\(docs\)/](docs\/vgpu.1.md)/g' \
        -e 's/\]\(([a-z./-]*vgpud?[a-z-]*\.[158])\)/](\1.md)/g' "$source/$1" >"$pages/$1"
}

copy_manual() {
    name=$(basename "$1")
    {
        printf '# %s(%s)\n\n<div class="manual">\n' "${name%.*}" "${name##*.}"
        # An empty line would end the block of HTML. Pages of other projects are at Debian.
        mandoc -T html -O fragment,man=%N.%S.html "$1" |
            sed -E -e '/^$/d' -e '/href="vgpu/!s|href="([^"#/]+)\.html"|href="https://manpages.debian.org/\1"|'
        printf '</div>\n'
    } >"$pages/docs/$name.md"
}

rm -rf "$pages" "$to/site"
mkdir -p "$pages"
cd "$source"
for page in README.md ARCHITECTURE.md SECURITY.md CONTRIBUTING.md CHANGELOG.md docs/*.md docs/design/*.md docs/how-to/*.md sim/README.md; do
    mkdir -p "$pages/$(dirname "$page")"
    copy_markdown "$page"
done
for page in docs/*.[158]; do
    copy_manual "$page"
done
cp docs/site/site.css "$pages"
cp docs/demo.svg "$pages/docs"

for page in $(cd "$pages" && find . -name '*.md' | sed 's|^\./||'); do
    grep -q ": $page\$" docs/site/mkdocs.yml || {
        echo "site: docs/site/mkdocs.yml lacks $page" >&2
        exit 1
    }
done
sed -e "s|^docs_dir: .*|docs_dir: $pages|" -e "s|^site_dir: .*|site_dir: $to/site|" docs/site/mkdocs.yml >"$to/site.yml"
mkdocs build --strict --config-file "$to/site.yml" >"$to/site.log" 2>&1 || {
    grep -v '^INFO' "$to/site.log" >&2
    exit 1
}
python3 docs/site/anchors.py "$to/site"
echo "$to/site/index.html"
