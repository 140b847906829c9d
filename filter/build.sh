#!/bin/sh
# Builds target/filter.wasm: wasm32-unknown-unknown, SIMD, fat LTO. Two routes:
#   native  the toolchain on the path has the target, or rustup can add it
#   debian  packages rustc-web cargo-web rust-web-src lld-19: builds std itself
# FILTER_ROUTE=native|debian picks one; without it the first that works is taken.
set -eu
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
# SIMD is what makes the scan of a large body free (memchr has a wasm path); V8 in Envoy has had it for years.
RUSTFLAGS="-C target-feature=+simd128 ${RUSTFLAGS-}"
export RUSTFLAGS

has_target() {
    command -v rustc >/dev/null 2>&1 && [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]
}

add_target() {
    command -v rustup >/dev/null 2>&1 && rustup target add "$target" >/dev/null 2>&1
}

has_debian() {
    [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -x /usr/bin/wasm-ld-19 ] &&
        [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/std" ]
}

build_native() {
    cargo build --locked -p filter --profile filter --target "$target"
    built=${CARGO_TARGET_DIR:-target}/$target/filter/filter.wasm
}

build_debian() {
    # Its own folder: two compilers in one would rebuild everything at each change of route.
    # -Zbuild-std is unstable, hence RUSTC_BOOTSTRAP; it concerns this wasm alone.
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-19 \
        CARGO_TARGET_DIR=target/debian /usr/bin/cargo build --locked -p filter --profile filter --target "$target" \
        -Zbuild-std=std,panic_abort
    built=target/debian/$target/filter/filter.wasm
}

case "${FILTER_ROUTE-}" in
native) build_native ;;
debian) build_debian ;;
"")
    if has_target || { add_target && has_target; }; then
        build_native
    elif has_debian; then
        build_debian
    else
        echo "filter: no compiler for $target. Either run: rustup target add $target" >&2
        echo "filter: or, on Debian, run: apt-get install rustc-web cargo-web rust-web-src lld-19" >&2
        exit 1
    fi
    ;;
*)
    echo "filter: FILTER_ROUTE is \"$FILTER_ROUTE\"; use native, debian, or nothing" >&2
    exit 1
    ;;
esac

mkdir -p target
# Moved into place whole: an Envoy that starts meanwhile must not read half a file.
cp "$built" target/filter.wasm.new
mv target/filter.wasm.new target/filter.wasm
