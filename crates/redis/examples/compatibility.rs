//! Prints docs/redis-compatibility.md.

fn main() {
    let expected_failures = include_str!("../../../tests/redis-suite/expected-failures");
    print!("{}", ordo_redis::compatibility::page(expected_failures));
}
