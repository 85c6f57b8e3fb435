#!/bin/sh
# TLS and a bearer token, for addresses that other machines reach.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
command -v openssl >/dev/null || {
    echo 'skipped: there is no openssl to make a certificate with'
    exit 77
}

make_certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=vgpud \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$root/$1.key" -out "$root/$1.pem" 2>"$err" || fail 'openssl'
    chmod 0600 "$root/$1.key"
}

# settings LISTEN CERTIFICATE KEY TOKEN_FILE
settings() {
    printf 'metrics = {\n    listen = "%s"\n    tls_certificate = "%s"\n    tls_key = "%s"\n    token_file = "%s"\n}\n' \
        "$@" >"$config"
}

# refuse_config WORDS: vgpud --check says so.
refuse_config() {
    "$VGPUD" --config "$config" --check >"$out" 2>"$err"
    same 'the status of --check' 1 $?
    grep -qF -- "$1" "$err" || fail "does not say \"$1\""
}

make_certificate good
make_certificate other
token=0123456789abcdef0123456789abcdef
echo "$token" >"$root/token"
chmod 0600 "$root/token"

settings 0.0.0.0:0 "$root/good.pem" "$root/good.key" ''
refuse_config 'other machines may reach 0.0.0.0:0, and token_file is not set'
settings 0.0.0.0:0 '' '' "$root/token"
refuse_config 'and tls_certificate is not set'
settings 127.0.0.1:0 "$root/good.pem" '' ''
refuse_config 'tls_certificate is set in vgpud.conf without tls_key'
settings 0.0.0.0:0 "$root/good.pem" "$root/none.key" "$root/token"
refuse_config "$root/none.key cannot be used: No such file or directory"
echo short >"$root/short"
chmod 0600 "$root/short"
settings 127.0.0.1:0 '' '' "$root/short"
refuse_config "the first line of $root/short is no token: write 16 characters or more"
echo "$token" >"$root/open"
chmod 0644 "$root/open"
settings 127.0.0.1:0 '' '' "$root/open"
refuse_config "others may read or write $root/open: chmod it to 0600"
settings 0.0.0.0:0 "$root/good.pem" "$root/other.key" "$root/token"
"$VGPUD" --config "$config" >"$out" 2>"$err"
same 'the status with another key' 125 $?
grep -q 'the certificate and the key do not match' "$err" || fail 'does not say why'

settings 0.0.0.0:0 "$root/good.pem" "$root/good.key" "$root/token"
start_vgpud VGPUD_TEST=1
grep -q 'serves https://0.0.0.0:' "$log" || fail "no https: $(cat "$log")"
export HTTPS="$root/good.pem"
same 'without a token' 401 "$(client get /metrics "$out")"
! grep -q vgpu_ "$out" || fail 'and yet metrics'
for wrong in "Bearer $token$token" "Bearer ${token%f}" "Bearer ${token%f}0" 'Bearer ' "Basic $token" "$token"; do
    same "with \"$wrong\"" 401 "$(client get /metrics "$out" "Authorization: $wrong")"
done
same 'with the token' 200 "$(client get /metrics "$out" "Authorization: Bearer $token")"
grep -q '^vgpud_build_info' "$out" || fail 'no metrics'
same 'plain HTTP' '' "$(HTTPS='' client raw 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' | grep 200)"

# A new certificate and a new token count after SIGHUP.
cp "$root/other.pem" "$root/good.pem"
cp "$root/other.key" "$root/good.key"
echo "new$token" >"$root/token"
kill -HUP "$vgpud"
wait_log "has read $config again"
find_port
same 'with the old token' 401 "$(client get /metrics "$out" "Authorization: Bearer $token")"
same 'with the new one' 200 "$(client get /metrics "$out" "Authorization: Bearer new$token")"
echo x >"$root/token"
kill -HUP "$vgpud"
wait_log 'keeps its present settings: the first line of'
same 'after a bad one' 200 "$(client get /metrics "$out" "Authorization: Bearer new$token")"
stop_vgpud
