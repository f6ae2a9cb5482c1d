//! Whether the target has what the source has.
//!
//! Values are compared decoded: two servers write the same value in different forms.

use super::cut_over::Pause;
use super::snapshot::{SnapshotFile, Tally, Wanted};
use super::target::Target;
use super::{DELAY_MS, Plan, Verify, now_ms};
use anyhow::{Context, Result, bail};
use redis_surface::codec::encode_command;
use redis_surface::rdb::{RdbItem, dumped_value, is_module, is_same, quoted, value};
use server::client::{Answer, Client};
use txn::{Blob, Value};

/// How many keys a sample has, about.
const SAMPLE_KEYS: u64 = 1000;
/// How many keys are asked for at once.
const KEYS_AT_ONCE: usize = 64;
/// How many differences are told.
const SHOWN_MAX: usize = 10;

/// A key as it should be.
struct Expected {
    key: Blob,
    value: Value,
    /// 0 for never.
    expires_at_ms: u64,
}

/// What a server says of a key: its value, if it has one, and when it expires, 0 for never.
type Held = (Option<Value>, u64);

/// What was found.
#[derive(Default)]
pub struct Comparison {
    pub compared: u64,
    pub different: Vec<Blob>,
}

impl Comparison {
    /// Ends in an error if anything differs.
    fn verdict(&self) -> Result<()> {
        if self.different.is_empty() {
            eprintln!("compared: {} keys are the same", self.compared);
            return Ok(());
        }
        let shown = self.different.iter().take(SHOWN_MAX).map(|key| quoted(key));
        bail!(
            "{} of {} compared keys differ between the source and the target: {}",
            self.different.len(),
            self.compared,
            shown.collect::<Vec<_>>().join(", ")
        )
    }
}

/// What a server has under keys.
fn held(client: &mut Client, keys: &[Blob], skips_modules: bool) -> Result<Vec<Held>> {
    let mut bytes = Vec::new();
    for key in keys {
        encode_command(&[b"DUMP", &key[..]], &mut bytes);
        encode_command(&[b"PEXPIRETIME", &key[..]], &mut bytes);
    }
    client.send(&bytes)?;
    let mut all = Vec::new();
    for key in keys {
        let dumped = match client.answer_in_bytes()? {
            Ok(dumped) => dumped,
            Err(text) => bail!("DUMP of the key {} was refused: {text}", quoted(key)),
        };
        let expires_at_ms = match client.answer()? {
            Answer::Text(text) => text.parse::<i64>().ok().and_then(|at_ms| u64::try_from(at_ms).ok()),
            Answer::Error(text) => {
                bail!("PEXPIRETIME was refused ({text}): to compare needs Redis 7.0 or later")
            }
            answer => bail!("PEXPIRETIME was answered {answer:?}"),
        };
        // Fields that have expired count: the source tells its replicas when it deletes them.
        let value = match dumped {
            Some(dumped) if is_module(&dumped) && skips_modules => None,
            Some(dumped) => {
                let value = dumped_value(&dumped, 0);
                Some(value.with_context(|| format!("the value of the key {} can't be read", quoted(key)))?)
            }
            None => None,
        };
        all.push((value, expires_at_ms.unwrap_or(0)));
    }
    Ok(all)
}

/// Compares keys with what the target has of them.
fn compare(expected: &mut Vec<Expected>, target: &mut Target, found: &mut Comparison) -> Result<()> {
    let keys: Vec<Blob> = expected.iter().map(|expected| expected.key.clone()).collect();
    let now_ms = now_ms();
    for (expected, (value, expires_at_ms)) in expected.drain(..).zip(held(&mut target.client, &keys, false)?)
    {
        let has_expired = expected.expires_at_ms != 0 && expected.expires_at_ms <= now_ms;
        let is_same = match &value {
            Some(value) => is_same(&expected.value, value),
            // It expired between the two looks.
            None => has_expired,
        };
        found.compared += 1;
        if !is_same || (value.is_some() && expected.expires_at_ms != expires_at_ms) {
            found.different.push(expected.key);
        }
    }
    Ok(())
}

/// Compares a file with the target, as far as is wished.
pub fn with_file(
    file: &SnapshotFile<'_>,
    plan: &Plan,
    database: u64,
    loaded: &Tally,
    target: &mut Target,
) -> Result<()> {
    let verify = plan.import.verify;
    if verify == Verify::None {
        return Ok(());
    }
    if !plan.merges() {
        let count = target.count()?;
        eprintln!("counted: {} keys loaded, {count} keys in the target", loaded.keys);
        // Keys may have expired meanwhile.
        if count > loaded.keys || count < loaded.keys - loaded.expiring {
            bail!(
                "{} keys were loaded, {} of which expire some time, and the target has {count}: does another \
                 client write to it?",
                loaded.keys,
                loaded.expiring
            );
        }
    }
    if verify == Verify::Counts {
        return Ok(());
    }
    let every = match verify {
        Verify::Sample => (loaded.keys / SAMPLE_KEYS).max(1),
        _ => 1,
    };
    let mut reader = file.reader()?;
    let (mut tally, mut found, mut expected) = (Tally::default(), Comparison::default(), Vec::new());
    let now_ms = now_ms();
    loop {
        let item = reader.next().with_context(|| file.path.display().to_string())?;
        let is_over = item == RdbItem::End;
        if let Some(Wanted::Key(key)) = tally.take(item, Some(database), now_ms)
            && tally.keys.is_multiple_of(every)
        {
            expected.push(Expected {
                value: value(&key.payload)
                    .with_context(|| format!("the value of the key {} can't be read", quoted(&key.key)))?,
                expires_at_ms: key.expires_at_ms.unwrap_or(0),
                key: key.key,
            });
        }
        if expected.len() == KEYS_AT_ONCE || is_over {
            compare(&mut expected, target, &mut found)?;
        }
        if is_over {
            return found.verdict();
        }
    }
}

/// Walks over the keys of a server.
pub struct Walk {
    cursor: Vec<u8>,
    is_over: bool,
}

impl Walk {
    pub fn new() -> Walk {
        Walk { cursor: b"0".to_vec(), is_over: false }
    }

    /// Some more keys; `None` after the last ones.
    pub fn next(&mut self, client: &mut Client) -> Result<Option<Vec<Blob>>> {
        const COUNT: &[u8] = b"500";
        if self.is_over {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        encode_command(&[b"SCAN", &self.cursor[..], b"COUNT", COUNT], &mut bytes);
        client.send(&bytes)?;
        let (cursor, keys) = client.scan_answer()?;
        self.is_over = cursor == b"0";
        self.cursor = cursor;
        Ok(Some(keys.into_iter().map(Blob::from).collect()))
    }
}

/// Compares a source that nobody writes to with the target, where dates are delayed.
pub fn with_source(plan: &Plan, source: &mut Client, target: &mut Target, pause: &mut Pause) -> Result<()> {
    let limit = match plan.import.verify {
        Verify::None | Verify::Counts => return Ok(()),
        Verify::Sample => SAMPLE_KEYS,
        Verify::Full => u64::MAX,
    };
    let (mut walk, mut found) = (Walk::new(), Comparison::default());
    while found.compared < limit
        && let Some(keys) = walk.next(source)?
    {
        for keys in keys.chunks(KEYS_AT_ONCE) {
            pause.keep(source, plan)?;
            let mut expected = Vec::new();
            let skips_modules = plan.import.skip_modules;
            for (key, (value, at_ms)) in keys.iter().zip(held(source, keys, skips_modules)?) {
                let expires_at_ms = if at_ms == 0 { 0 } else { at_ms + DELAY_MS };
                // A key that has expired may be there still, and be no more for who asks.
                if let Some(value) = value {
                    expected.push(Expected { key: key.clone(), value, expires_at_ms });
                }
            }
            compare(&mut expected, target, &mut found)?;
        }
    }
    found.verdict()
}
