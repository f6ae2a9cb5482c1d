//! What the clients of a cluster do.
//!
//! | workload | what each client does in a loop | what must hold afterwards |
//! |---|---|---|
//! | `get`, `set` | one command on a random key of `keys`; keys and values of 16 bytes | |
//! | `incr` | increments a random counter of `keys` | the counters grew by what was answered |
//! | `transfer` | a script moves a random amount between two random accounts | no money was made or lost |
//! | `transfer-across` | the same, between accounts of any partitions | the same |
//!
//! Where there are several partitions, the accounts (or counters) of a client have a hash tag in common, one
//! of [`TAGS`], so that each transaction is one of a single partition; but for `transfer-across`, whose
//! accounts have none.

use super::Options;
use crate::redis::load::{Class, Measured, Target};
use crate::redis::template::{Part, Template};
use crate::redis::{ACCOUNTS, LOAD_PIPELINE, OPENING_BALANCE, TRANSFER, fill, load_script, number};
use anyhow::{Context, Result, bail};
use server::client::{Answer, Client};

/// Hash tags of accounts and counters, if there are several partitions.
const TAGS: u64 = 64;
/// Keys that one command reads when sums are taken.
const READ_AT_ONCE: usize = 500;
/// So many of those commands are on their way at once.
const READ_PIPELINE: usize = 8;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// GET of random keys.
    Get,
    /// SET of random keys.
    Set,
    /// INCR of random counters.
    Incr,
    /// A script over two random accounts of one partition.
    Transfer,
    /// A script over two random accounts.
    TransferAcross,
}

impl Work {
    const ALL: [(&'static str, Work); 5] = [
        ("get", Work::Get),
        ("set", Work::Set),
        ("incr", Work::Incr),
        ("transfer", Work::Transfer),
        ("transfer-across", Work::TransferAcross),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Work::ALL.iter().find(|(_, work)| *work == self);
        found.map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Work {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Work> {
        let found = Work::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, work)| *work).with_context(|| {
            format!("unknown workload '{name}': get, set, incr, transfer or transfer-across")
        })
    }
}

/// A work for which a contender is ready.
pub(super) struct Prepared {
    work: Work,
    keys: u64,
    tags: u64,
    sha: String,
    /// The sum of the counters or accounts at the beginning.
    before: u64,
    /// Answers that were counted.
    answered: u64,
    /// Answers that came when a slice was over, at most.
    late_max: u64,
}

impl Prepared {
    /// Loads what the work needs.
    pub fn new(work: Work, options: &Options, targets: &[Target]) -> Result<Prepared> {
        let mut prepared = Prepared {
            work,
            keys: options.keys,
            tags: match work {
                Work::TransferAcross => 1,
                _ if options.partitions() == 1 => 1,
                _ => TAGS,
            },
            sha: String::new(),
            before: 0,
            answered: 0,
            late_max: 0,
        };
        let mut client = connect(&targets[0])?;
        match work {
            Work::Get | Work::Set => {
                if options.load {
                    fill(&mut client, options.keys)?;
                }
            }
            Work::Incr => prepared.before = prepared.sum(&mut client)?,
            Work::Transfer | Work::TransferAcross => {
                if options.load {
                    prepared.open_accounts(&mut client)?;
                }
                for target in targets {
                    prepared.sha = load_script(&mut connect(target)?, TRANSFER)?;
                }
                prepared.before = prepared.sum(&mut client)?;
            }
        }
        Ok(prepared)
    }

    /// The clients of a slice.
    pub fn class(&self, options: &Options, round: usize) -> Class {
        let template = |client: usize| {
            let seed = options.seed ^ (round as u64) << 48 ^ (client as u64) << 32;
            self.template(client, options.pipeline, txn::hash::mix(seed))
        };
        Class { templates: (0..options.clients).map(template).collect(), pipeline: options.pipeline as u64 }
    }

    fn template(&self, client: usize, pipeline: usize, seed: u64) -> Template {
        let key = [Part::Text("key:"), number(12, self.keys)];
        let value = [Part::Text("value:"), number(10, 10_000_000_000)];
        let prefix = self.prefix(client as u64 % self.tags);
        let bound = self.names_of_a_tag();
        let name = [Part::Text(&prefix), number(8, bound)];
        let other = [Part::Text(&prefix), Part::Number { digits: 8, bound, fresh: true }];
        let (script, amount) = ([Part::Text(&self.sha)], [number(2, 20)]);
        let args: Vec<&[Part<'_>]> = match self.work {
            Work::Get => vec![&[Part::Text("GET")], &key],
            Work::Set => vec![&[Part::Text("SET")], &key, &value],
            Work::Incr => vec![&[Part::Text("INCR")], &name],
            Work::Transfer | Work::TransferAcross => {
                vec![&[Part::Text("EVALSHA")], &script, &[Part::Text("2")], &name, &other, &amount]
            }
        };
        Template::new(&args, pipeline, seed)
    }

    /// Notes what a slice did.
    pub fn note(&mut self, options: &Options, measured: &Measured) {
        self.answered += measured.tally.replies;
        self.late_max += (options.clients * options.pipeline) as u64;
    }

    /// Holds what is there now against what clients were told.
    pub fn check(&self, targets: &[Target]) -> Result<()> {
        let mut client = connect(&targets[0])?;
        match self.work {
            Work::Get | Work::Set => {}
            Work::Incr => {
                let grown = self.sum(&mut client)?.saturating_sub(self.before);
                let (least, most) = (self.answered, self.answered + self.late_max);
                if !(least..=most).contains(&grown) {
                    bail!("counters were incremented {least} to {most} times and grew by {grown}");
                }
            }
            Work::Transfer | Work::TransferAcross => {
                let (before, after) = (self.before, self.sum(&mut client)?);
                if before != after {
                    bail!(
                        "transfers lost or made money: the accounts held {before} before and {after} after \
                         them"
                    );
                }
            }
        }
        Ok(())
    }

    fn open_accounts(&self, client: &mut Client) -> Result<()> {
        let openings = (0..self.tags)
            .flat_map(|tag| self.names(tag))
            .map(|name| vec!["SET".into(), name, OPENING_BALANCE.to_string()]);
        client.pipeline(openings, LOAD_PIPELINE, |answer| answer.text("SET").map(drop))?;
        Ok(())
    }

    /// What the names of a tag's accounts or counters have in front.
    fn prefix(&self, tag: u64) -> String {
        let what = match self.work {
            Work::Incr => "counter",
            _ => "account",
        };
        match self.work {
            Work::TransferAcross => format!("{what}:"),
            _ => format!("{what}:{{{tag:02}}}:"),
        }
    }

    /// How many accounts or counters have the same tag.
    fn names_of_a_tag(&self) -> u64 {
        let all = match self.work {
            Work::Incr => self.keys,
            _ => ACCOUNTS,
        };
        all.div_ceil(self.tags)
    }

    fn names(&self, tag: u64) -> impl Iterator<Item = String> + use<> {
        let prefix = self.prefix(tag);
        (0..self.names_of_a_tag()).map(move |number| format!("{prefix}{number:08}"))
    }

    /// The sum of all accounts or counters. Nobody changes them meanwhile.
    fn sum(&self, client: &mut Client) -> Result<u64> {
        let mut total = 0;
        for tag in 0..self.tags {
            let names: Vec<String> = self.names(tag).collect();
            let reads = names.chunks(READ_AT_ONCE).map(|names| [&["MGET".to_owned()], names].concat());
            client.pipeline(reads, READ_PIPELINE, |answer| {
                let Answer::List(values) = answer else {
                    bail!("MGET was answered with {answer:?}");
                };
                for value in values {
                    if value != Answer::Nil {
                        let text = value.text("MGET")?;
                        let number = text.parse::<u64>();
                        total += number.with_context(|| format!("'{text}' is no amount"))?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(total)
    }
}

fn connect(target: &Target) -> Result<Client> {
    let Target { host, port, password, .. } = target;
    Ok(Client::connect(host, *port, password.as_deref())?)
}
