//! How a command reaches the nodes of a cluster, or a server: addresses, user, TLS.

use anyhow::{Result, bail};
use clap::Args;
use server::client::Access;
use server::tls::ClientTls;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable out of which `redis-cli` takes its password.
pub const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// Who is asked, and what it takes to be let in.
#[derive(Args)]
pub struct Nodes {
    /// Where nodes answer clients. Several, with commas or repeated, are tried in turn.
    #[arg(
        long,
        global = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:7001",
        value_name = "HOST:PORT"
    )]
    pub address: Vec<String>,
    /// How many seconds a node may take to be reached and to tell its status, before the next one is tried.
    #[arg(
        long,
        global = true,
        default_value_t = 3,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    timeout: u64,
    /// The user whose password is given, if it is not `default`.
    #[arg(long, global = true)]
    user: Option<String>,
    /// The nodes' password. Without it the variable REDISCLI_AUTH is taken, which other users of the machine
    /// cannot see.
    #[arg(long, global = true)]
    password: Option<String>,
    /// Speaks TLS with the nodes, whose certificates must be signed by the CA of --cacert.
    #[arg(long, global = true)]
    tls: bool,
    /// The file of the CA's certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,
    /// The file of the certificate to show to the nodes, which they want unless tls-auth-clients is no.
    #[arg(long, global = true, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// The file of its private key.
    #[arg(long, global = true, value_name = "FILE", requires_all = ["tls", "cert"])]
    key: Option<PathBuf>,
}

impl Nodes {
    /// What it takes to be let in. `variable` is the password of [`PASSWORD_VARIABLE`].
    pub fn access(&self, variable: Option<String>) -> Result<Access> {
        let password = self.password.clone().or(variable);
        if self.user.is_some() && password.is_none() {
            bail!("--user needs a password: give it with --password, or in the variable {PASSWORD_VARIABLE}");
        }
        Ok(Access { user: self.user.clone(), password, tls: self.tls()? })
    }

    /// How long a node may take to tell its status.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// With what connections are secured, if they are.
    fn tls(&self) -> Result<Option<ClientTls>> {
        if !self.tls {
            return Ok(None);
        }
        let Some(authority) = &self.cacert else {
            bail!("--tls needs --cacert, the file of the certificate of the CA that signs the nodes'");
        };
        client_tls(authority, self.cert.as_deref(), self.key.as_deref()).map(Some)
    }
}

/// With what connections are secured: the files of a CA's certificate, and of an own certificate and its key.
pub fn client_tls(authority: &Path, certificate: Option<&Path>, key: Option<&Path>) -> Result<ClientTls> {
    Ok(ClientTls::from_files(authority, certificate.zip(key))?)
}
