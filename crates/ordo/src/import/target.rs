//! The Ordo that data is imported into.

use super::source::info;
use super::{Plan, Source};
use anyhow::{Result, anyhow, bail};
use redis_surface::codec::encode_command;
use server::client::{Access, Answer, Client, ClientError};
use std::time::{Duration, Instant};

/// How long a node may take to reply: a large transaction, synced, fits well in.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to try nodes before an import that waits for them gives up.
const REACH_PATIENCE: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection to one of the target's nodes.
pub struct Target {
    pub client: Client,
    pub address: String,
}

fn try_open(address: &str, access: &Access) -> Result<Target> {
    let mut client = access.open(address, PATIENCE)?;
    if let Some(Answer::Error(text)) = access.log_in(&mut client)? {
        bail!("{address} does not take the password ({text}): correct --user and --password");
    }
    client.name_what_is_sent("a command of the import");
    Ok(Target { client, address: address.to_owned() })
}

impl Target {
    /// Connects to the first node that answers.
    pub fn open(plan: &Plan) -> Result<Target> {
        Target::open_from(plan, 0)
    }

    /// The same, the node at a place in the list of addresses first.
    pub fn open_from(plan: &Plan, place: usize) -> Result<Target> {
        let mut problem = anyhow!("no address is given");
        for at in 0..plan.addresses.len() {
            match try_open(&plan.addresses[(place + at) % plan.addresses.len()], &plan.access) {
                Ok(target) => return Ok(target),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// The same, again and again while no node answers.
    pub fn reach(plan: &Plan, place: usize) -> Result<Target> {
        let since = Instant::now();
        loop {
            match Target::open_from(plan, place) {
                Ok(target) => return Ok(target),
                Err(error) if since.elapsed() > REACH_PATIENCE || plan.stopped() => return Err(error),
                Err(_) => std::thread::sleep(RETRY_PAUSE),
            }
        }
    }

    /// Sends a command of any bytes and waits for the reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Answer, ClientError> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.client.send(&bytes)?;
        self.client.answer()
    }

    /// The same, for a reply that is no error.
    pub fn must(&mut self, words: &[&[u8]]) -> Result<Answer> {
        match self.call(words)? {
            Answer::Error(text) if is_passing(&text) => {
                let command = String::from_utf8_lossy(words[0]).into_owned();
                let answer = Answer::Error(text);
                Err(ClientError::Unexpected { command, answer }.into())
            }
            Answer::Error(text) => {
                let name = String::from_utf8_lossy(words[0]);
                bail!("{} refused {name}: {text}", self.address)
            }
            answer => Ok(answer),
        }
    }

    /// How many keys there are.
    pub fn count(&mut self) -> Result<u64> {
        match self.must(&[b"DBSIZE"])? {
            Answer::Text(text) => Ok(text.parse()?),
            answer => bail!("{} replied {answer:?} to DBSIZE", self.address),
        }
    }

    /// Deletes what is to be replaced, and holds that nothing else is there.
    pub fn make_ready(&mut self, plan: &Plan) -> Result<()> {
        self.must_be_fit(plan)?;
        if plan.import.replace {
            self.must(&[b"FLUSHALL"])?;
            self.must(&[b"FUNCTION", b"FLUSH"])?;
        }
        self.must_be_free(plan)
    }

    /// Holds that it can take an import.
    fn must_be_fit(&mut self, plan: &Plan) -> Result<()> {
        if !info(&mut self.client, "server")?.contains_key("ordo_version") {
            bail!("the target {} is no Ordo: --address says where one is", self.address);
        }
        let is_hierarchy = !info(&mut self.client, "hierarchy")?.is_empty();
        if is_hierarchy && (plan.import.replace || matches!(plan.source, Source::Server { .. })) {
            bail!(
                "the target {} is a node of a hierarchy, which takes an import of a file only, and without \
                 --replace",
                self.address
            );
        }
        Ok(())
    }

    /// Holds that there is nothing that is to be kept.
    pub fn must_be_free(&mut self, plan: &Plan) -> Result<()> {
        self.must_be_fit(plan)?;
        let count = self.count()?;
        if count > 0 && !plan.merges() {
            let resume = match plan.source {
                Source::File(_) => "",
                Source::Server { .. } => ", or --resume to go on with an import that was stopped",
            };
            bail!(
                "the target {} has {count} keys already: give --replace to delete them first, --merge to \
                 keep those that the source has not{resume}",
                self.address
            );
        }
        Ok(())
    }
}

/// Whether the same may be taken later, or was taken without anybody knowing.
pub fn is_passing(text: &str) -> bool {
    let text = text.strip_prefix("EXECABORT Transaction discarded because of: ").unwrap_or(text);
    ["ORDOUNKNOWN", "CLUSTERDOWN", "TRYAGAIN", "LOADING", "BUSY", "MISCONF"]
        .iter()
        .any(|code| text.starts_with(code))
}
