# What runs real programs against a built server: sourced by clients/run, applications/run and tools/run,
# which set $ordo. Servers keep their data and their output below $data, and are gone when the script ends.

data="$(mktemp -d)"
pids=()
# A signal ends the script as an error does: with what it has started.
trap 'exit 130' INT TERM
# Stops the servers that this shell has started.
stop_servers() {
    local pid
    # A node that was killed and started again is no child of the process that keeps the others.
    if [ -e "$data/restarted" ]; then
        while read -r pid; do
            kill "$pid" 2>/dev/null || true
        done <"$data/restarted"
        rm "$data/restarted"
    fi
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    pids=()
}
finish() {
    stop_servers
    rm -rf "$data"
}
trap finish EXIT

# need PROGRAM WHAT: ends the script if PROGRAM is not there, and says that WHAT is to be installed.
need() {
    command -v "$1" >/dev/null && return
    echo "$1 is missing: install $2" >&2
    exit 1
}

# still_runs PID NAME: ends the script with what NAME said, if process PID has ended.
still_runs() {
    kill -0 "$1" 2>/dev/null && return
    echo "$2 did not start:" >&2
    cat "$data/$2.log" >&2
    exit 1
}

# start NAME [SETTING ...]: starts a server in a directory of its own, and sets $port once it listens.
start() {
    local name="$1"
    shift
    mkdir "$data/$name"
    : >"$data/$name.log"
    "$ordo" serve --port 0 --bind 127.0.0.1 --dir "$data/$name" "$@" 2>"$data/$name.log" &
    local pid=$!
    pids+=("$pid")
    port=""
    while [ -z "$port" ]; do
        still_runs "$pid" "$name"
        port="$(sed -n 's/.*serving 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$data/$name.log" | head -n 1)"
        [ -n "$port" ] || sleep 0.05
    done
}

# leaders PORT: how many different nodes lead a partition, as the node at PORT sees it.
leaders() {
    "$ordo" admin status --address "127.0.0.1:$1" 2>/dev/null |
        sed -n 's/^| *[0-9][0-9]* | *[0-9-]* *| \(n[0-9]\) .*/\1/p' | sort -u | wc -l
}

# launch_cluster NAME NODES [OPTION ...]: starts the processes of a cluster, and sets $ports ("p1 p2 ...") and
# $cluster_pid.
launch_cluster() {
    local name="$1" nodes="$2" first
    shift 2
    while true; do
        # Below the ports that systems give away, also for the peers' (10,000 above).
        first=$((10000 + RANDOM % 4000 * 3))
        : >"$data/$name.log"
        "$ordo" cluster start --local "$nodes" "$@" --dir "$data/$name" --port "$first" \
            >"$data/$name.log" 2>&1 &
        cluster_pid=$!
        while ! grep -q 'Ctrl-C stops all' "$data/$name.log"; do
            if ! kill -0 "$cluster_pid" 2>/dev/null; then
                # Somebody else has one of the ports: others may be free.
                if grep -q 'in use' "$data/$name.log" "$data/$name"/*.log 2>/dev/null; then
                    rm -rf "${data:?}/$name"
                    continue 2
                fi
                still_runs "$cluster_pid" "$name"
            fi
            sleep 0.05
        done
        break
    done
    pids+=("$cluster_pid")
    ports="$(seq -s ' ' "$first" $((first + nodes - 1)))"
}

# start_cluster NAME: starts three nodes with three partitions, and sets $ports ("p1 p2 p3") once each
# answers, and sees that each leads one.
start_cluster() {
    local name="$1" node
    launch_cluster "$name" 3 --partitions 3
    # Whoever is up first leads more until the others are there.
    for node in $ports; do
        until [ "$(leaders "$node")" -eq 3 ]; do
            still_runs "$cluster_pid" "$name"
            sleep 0.05
        done
    done
}

# serves PORT: whether the server there has loaded its data.
serves() {
    local line=""
    (
        exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'PING\r\n' >&3 && read -r -t 5 line <&3
        [ "$line" = $'+PONG\r' ]
    ) 2>/dev/null
}

# start_hierarchy NAME: starts three nodes whose transactions a tree of validators certifies, and sets $ports
# ("p1 p2 p3") once each serves.
start_hierarchy() {
    local name="$1" node
    launch_cluster "$name" 3 --protocol hierarchy --fan-out 2
    for node in $ports; do
        until serves "$node"; do
            still_runs "$cluster_pid" "$name"
            sleep 0.05
        done
    done
}

# Where packages are kept, and what is made of them.
cache="$(dirname "${BASH_SOURCE[0]}")/../target/clients"
mkdir -p "$cache"
cache="$(realpath "$cache")"
export GOMODCACHE="$cache/go-modules" GOCACHE="$cache/go-build" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"
export CARGO_TARGET_DIR="$cache/rust"
maven_options=(--quiet --batch-mode "-Dmaven.repo.local=$cache/maven")

# maven WORDS ...: runs Maven, without the colours that it leaves at a line's ends.
maven() {
    need java "a JDK of Java 17 (Debian: openjdk-17-jdk-headless)"
    need mvn "Maven 3.8 (Debian: maven)"
    mvn "${maven_options[@]}" "$@" 2>&1 | sed 's/\x1b\[[0-9;]*m//g'
}

# name_of DIRECTORY: the last two of its names, with a dash between them.
name_of() {
    echo "$(basename "$(dirname "$1")")-$(basename "$1")"
}

# python_packages DIRECTORY: what DIRECTORY/requirements.txt pins is installed below $cache, and sets $python.
python_packages() {
    local name
    name="$(name_of "$1")"
    need python3 "Python 3.11 (Debian: python3 python3-venv)"
    if ! cmp -s "$1/requirements.txt" "$cache/$name.installed"; then
        rm -f "$cache/$name.installed"
        python3 -m venv --clear "$cache/$name"
        "$cache/$name/bin/pip" install --quiet --disable-pip-version-check -r "$1/requirements.txt"
        cp "$1/requirements.txt" "$cache/$name.installed"
    fi
    python="$cache/$name/bin/python"
}

# node_packages DIRECTORY: what DIRECTORY/package-lock.json pins is installed below $cache with the programs
# of DIRECTORY, and sets $node.
node_packages() {
    local name
    name="$(name_of "$1")"
    need node "Node.js 20 (Debian: nodejs)"
    need npm "npm 9 (Debian: npm)"
    node="$cache/$name"
    mkdir -p "$node"
    if ! cmp -s "$1/package-lock.json" "$cache/$name.installed"; then
        rm -f "$cache/$name.installed"
        cp "$1/package.json" "$1/package-lock.json" "$node/"
        # Not `npm ci`, which asks for the optional packages of other systems, too.
        npm install --silent --prefix "$node" --no-audit --no-fund --ignore-scripts --omit=optional
        cp "$1/package-lock.json" "$cache/$name.installed"
    fi
    cp "$1"/*.mjs "$node/"
}

# each NAME ...: runs the functions of these names, tells of each how it went, and fails if one of them has
# failed.
each() {
    local name begin failed=()
    for name in "$@"; do
        echo "== $name"
        begin=$SECONDS
        # In a shell of its own, so that an error ends it and nothing else, and so do its servers.
        set +e
        (
            set -e
            pids=()
            trap stop_servers EXIT
            "$name"
        )
        if [ $? -eq 0 ]; then
            echo "== $name: passed in $((SECONDS - begin)) s"
        else
            echo "== $name: FAILED after $((SECONDS - begin)) s"
            failed+=("$name")
        fi
        set -e
    done
    if [ ${#failed[@]} -gt 0 ]; then
        echo "failed: ${failed[*]}"
        return 1
    fi
    echo "passed: $*"
}
