//! The ports: whether a server could listen there.

use super::Finding;
use server::cluster::config::host_and_port;
use server::config::Config;
use std::io::{self, ErrorKind};
use std::net::TcpListener;

/// Tries each address where a server with these settings listens.
pub fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ports = [("port", config.port, &config.bind), ("tls-port", config.tls_port, &config.bind)];
    for (what, port, hosts) in ports.into_iter().chain([("http-port", config.http_port, &config.http_bind)]) {
        let port = u16::try_from(port).unwrap_or(0);
        if port > 0 {
            findings.extend(hosts.iter().filter_map(|host| of_host(what, host, port)));
        }
    }
    if let Some((cluster, name)) = &config.cluster
        && let Some(node) = cluster.node(name)
        && let Some((host, port)) = host_and_port(&node.peer_address)
    {
        findings.extend(of_host("peer_address", host, port));
    }
    findings
}

/// One that may be missing has a dash before it, as in Redis.
fn of_host(what: &str, host: &str, port: u16) -> Option<Finding> {
    let (host, may_miss) = match host.strip_prefix('-') {
        Some(host) => (host, true),
        None => (host, false),
    };
    let host = match host {
        "*" => "0.0.0.0",
        host => host.trim_matches(['[', ']']),
    };
    let finding = of_attempt(what, host, port, TcpListener::bind((host, port)));
    let is_missing = finding.grade == super::Grade::Failed && !finding.found.contains("in use");
    (!may_miss || !is_missing).then_some(finding)
}

fn of_attempt(what: &str, host: &str, port: u16, attempt: io::Result<TcpListener>) -> Finding {
    let shown = format!("{what} {host}:{port}");
    match attempt {
        Ok(_) => Finding::ok("ports", format!("{shown} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Finding::failed(
            "ports",
            format!("{shown} is in use"),
            "stop the process that has it ('ss -ltnp' names it), or give another one",
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Finding::failed(
            "ports",
            format!("{shown} is not allowed: {error}"),
            "ports below 1024 need a privilege: give another one",
        ),
        Err(error) => Finding::failed(
            "ports",
            format!("{shown} cannot be listened at: {error}"),
            "the address must be one of this machine ('ip address' lists them)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn a_port_is_free_or_in_use_and_an_address_is_ours_or_not() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let found = of_host("port", "127.0.0.1", port).expect("a finding");
        assert!(found.grade == Grade::Failed && found.found.contains("in use"), "{found:?}");
        assert!(of_host("port", "-127.0.0.1", port).is_some_and(|found| found.grade == Grade::Failed));
        drop(taken);
        assert!(of_host("port", "127.0.0.1", port).is_some_and(|found| found.grade == Grade::Ok));
        // An address for documentation, which no machine has.
        let found = of_host("port", "192.0.2.1", port).expect("a finding");
        assert!(found.grade == Grade::Failed && found.advice.contains("of this machine"), "{found:?}");
        assert_eq!(of_host("port", "-192.0.2.1", port), None);
    }
}
