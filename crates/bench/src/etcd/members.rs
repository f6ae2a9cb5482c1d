//! An etcd cluster of this machine.

use crate::child::{HOST, dying_with_us, free_port};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A cluster that is not healthy by then will not be.
const START_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Member {
    child: Child,
    client: SocketAddr,
    output: PathBuf,
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
            let output = data.join("output");
            let copy = File::create(&output)?;
            let mut command = dying_with_us(etcd);
            command
                .args(["--name", &name, "--log-outputs", "stderr", "--data-dir"])
                .arg(data.join("data"))
                .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
                .stdin(Stdio::null())
                .stdout(copy.try_clone()?)
                .stderr(copy);
            let child = command.spawn().with_context(|| {
                format!(
                    "could not start {}: on Debian: apt install etcd-server, or give --etcd",
                    etcd.display()
                )
            })?;
            members.0.push(Member { child, client: SocketAddr::new(HOST.parse()?, client), output });
        }
        members.wait_until_healthy()?;
        Ok(members)
    }

    fn wait_until_healthy(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        for member in &mut self.0 {
            while !is_healthy(member.client) {
                let ended = member.child.try_wait()?;
                if ended.is_some() || Instant::now() > deadline {
                    let said = std::fs::read_to_string(&member.output).unwrap_or_default();
                    let lines: Vec<&str> = said.lines().collect();
                    let last = lines[lines.len().saturating_sub(5)..].join("\n  ");
                    bail!("etcd did not come up. The last that it said:\n  {last}");
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    /// Where clients reach the members.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|member| member.client).collect()
    }
    /// Their processes.
    pub fn processes(&self) -> Vec<u32> {
        self.0.iter().map(|member| member.child.id()).collect()
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

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // Its data is temporary, and it may be gone already.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
