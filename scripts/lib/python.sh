# Sourced by the scripts beside it: a Python >= 3.11 and virtual environments that are made once and kept.

fail() { printf '%s: %s\n' "${0##*/}" "$1" >&2; exit "${2:-1}"; }

apt_install() {
    [ "$(id -u)" = 0 ] || fail "needs the packages $*: install them, or run this as root" 2
    command -v apt-get >/dev/null || fail "needs the packages $*, and there is no apt-get to install them" 2
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 update -qq
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# make_venv DIR REQUIREMENT [--editable]: installs once, and again only when setup.cfg or the packaged sources changed.
make_venv() {
    local dir=$1 requirement=$2 editable=${3:-} python stamp
    if ! python=$(find_python); then
        apt_install python3 python3-venv ca-certificates
        python=$(find_python) || fail "found no Python >= 3.11 with venv, even after installing python3 and python3-venv" 2
    fi
    if [ -n "$editable" ]; then stamp=$(cat setup.cfg pyproject.toml | sha256sum)
    else stamp=$(find setup.cfg pyproject.toml pyslurm_budget slurm_conf -type f ! -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum); fi
    if [ "$(cat "$dir/.stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check ${editable:+--editable} "$requirement" ||
        fail "pip could not install $requirement into $dir" 1
    printf '%s\n' "$stamp" >"$dir/.stamp"
}
