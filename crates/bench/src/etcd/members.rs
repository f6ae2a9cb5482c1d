//! An etcd cluster of this machine.

use crate::child::dying_with_us;
use anyhow::{Context, Result, bail};
use server::launcher::{HOST, ServerProcess, free_port};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// A cluster that is not healthy by then will not be.
const START_MAX: Duration = Duration::from_secs(30);

struct Member {
    process: ServerProcess,
    client: SocketAddr,
}

/// Running members. Dropping them kills them.
pub struct Members(Vec<Member>);

impl Members {
    /// Starts `count` members with new data in `directory` and waits until all are healthy.
    pub fn start(etcd: &Path, count: usize, directory: &Path) -> Result<Members> {
        let mut ports = Vec::new();
        for _ in 0..count {
            ports.push((free_port()?, free_port()?));
        }
        let peers: Vec<String> =
            (0..count).map(|index| format!("m{index}=http://{HOST}:{}", ports[index].1)).collect();
        let mut members = Members(Vec::new());
        for (index, &(client, peer)) in ports.iter().enumerate() {
            let name = format!("m{index}");
            let (client_url, peer_url) = (format!("http://{HOST}:{client}"), format!("http://{HOST}:{peer}"));
            let data = directory.join(&name);
            std::fs::create_dir_all(&data).with_context(|| format!("could not make {}", data.display()))?;
            let mut command = dying_with_us(etcd);
            command
                .args(["--name", &name, "--log-outputs", "stderr", "--data-dir"])
                .arg(data.join("data"))
                .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"]);
            let process = ServerProcess::start(&name, &mut command, &data.join("output"))
                .context("etcd is needed: on Debian, apt install etcd-server, or give --etcd")?;
            members.0.push(Member { process, client: SocketAddr::new(HOST.parse()?, client) });
        }
        for Member { process, client } in &mut members.0 {
            process.wait_for("become healthy", START_MAX, || is_healthy(*client).then_some(()))?;
        }
        Ok(members)
    }

    /// Where clients reach the members.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|member| member.client).collect()
    }
    /// Their processes.
    pub fn processes(&self) -> Vec<u32> {
        self.0.iter().map(|member| member.process.id()).collect()
    }
    /// The member that leads.
    pub fn leader(&self) -> Result<SocketAddr> {
        for member in &self.0 {
            if http_get(member.client, "/metrics")?.lines().any(|line| line == "etcd_server_is_leader 1") {
                return Ok(member.client);
            }
        }
        bail!("no member of etcd says that it leads");
    }
}

/// Whether a member has a leader and can put.
fn is_healthy(member: SocketAddr) -> bool {
    http_get(member, "/health").is_ok_and(|text| text.contains("\"health\":\"true\""))
}

fn http_get(member: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(member)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {member}\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
