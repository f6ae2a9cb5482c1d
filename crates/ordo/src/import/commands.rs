//! The commands of the source's stream, as the target gets them.
//!
//! A source sends what has an effect, in a form whose effect does not depend on when or where it is executed:
//! scripts as the commands that they called, times as dates. So nearly all goes to the target as it is. What
//! is changed:
//!
//! | command | what becomes of it |
//! |---|---|
//! | SELECT | names the database of what follows: others are left out with `--database`, else refused |
//! | MULTI, EXEC | say which commands must stay in one transaction |
//! | PING, REPLCONF, PUBLISH, SPUBLISH, SCRIPT | not data: left out |
//! | dates of expiry | are delayed ([`super::DELAY_MS`]); terms become dates |
//! | RESTORE | gets the form that Ordo reads |
//! | of fields that expire | left out with `--keep-expiring-fields`, else refused |
//! | FLUSHALL, FLUSHDB | refused with `--merge`: they would delete what others have |
//! | EVAL and its kin, MOVE, SWAPDB, what Ordo has not | refused |

use super::DELAY_MS;
use anyhow::{Result, anyhow, bail};
use redis_surface::execute::Caller;
use redis_surface::rdb::{quoted, restorable_dump};
use redis_surface::{parse, table};
use txn::{Blob, Reply};

/// Follows the stream.
pub struct Translator {
    /// The database that the source's commands are of, and the one that is imported.
    pub database: u64,
    pub wanted: u64,
    /// Commands of other databases are left out (`--database`), and else refused.
    pub leaves_databases_out: bool,
    /// Between MULTI and EXEC.
    pub in_transaction: bool,
    pub keep_expiring_fields: bool,
    /// The target has keys of others.
    pub is_merging: bool,
    /// Commands of other databases, and messages.
    pub left_out: u64,
    /// The source asked how far the target is.
    pub is_asked: bool,
}

/// A unit of a time, and from where it counts.
#[derive(Clone, Copy)]
struct Time {
    unit_ms: i64,
    is_date: bool,
}

const SECONDS: Time = Time { unit_ms: 1000, is_date: false };
const MILLISECONDS: Time = Time { unit_ms: 1, is_date: false };
const DATE: Time = Time { unit_ms: 1000, is_date: true };
const DATE_MS: Time = Time { unit_ms: 1, is_date: true };

impl Time {
    fn of(option: &[u8]) -> Option<Time> {
        let times = [("EX", SECONDS), ("PX", MILLISECONDS), ("EXAT", DATE), ("PXAT", DATE_MS)];
        times.into_iter().find(|(name, _)| option.eq_ignore_ascii_case(name.as_bytes())).map(|(_, time)| time)
    }

    /// The delayed date, in milliseconds since 1970.
    fn delayed(self, number: &[u8], now_ms: u64) -> Result<Blob> {
        let date_ms = parse::integer(number).and_then(|number| number.checked_mul(self.unit_ms));
        let date_ms = match self.is_date {
            true => date_ms,
            false => date_ms.and_then(|term_ms| term_ms.checked_add_unsigned(now_ms)),
        };
        let delayed_ms = date_ms.and_then(|date_ms| date_ms.checked_add_unsigned(DELAY_MS));
        let delayed_ms =
            delayed_ms.ok_or_else(|| anyhow!("the source sent a time that is none: {}", quoted(number)))?;
        Ok(parse::integer_text(delayed_ms))
    }
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

impl Translator {
    /// What the target gets for a command; nothing for some.
    pub fn translate(&mut self, mut words: Vec<Blob>, now_ms: u64) -> Result<Option<Vec<Blob>>> {
        let name = words[0].to_ascii_uppercase();
        match &name[..] {
            b"SELECT" => {
                let number = words.get(1).and_then(|word| parse::unsigned(word));
                self.database = number.ok_or_else(|| refused(&words, "it names no database"))?;
                return Ok(None);
            }
            b"MULTI" => self.in_transaction = true,
            b"EXEC" => self.in_transaction = false,
            b"REPLCONF" => self.is_asked = true,
            b"PING" => {}
            b"PUBLISH" | b"SPUBLISH" | b"SCRIPT" => self.left_out += 1,
            b"SWAPDB" => bail!(refused(&words, "Ordo has one database")),
            b"FLUSHALL" | b"FLUSHDB" if self.is_merging => {
                bail!(refused(&words, "with --merge it would delete what others have written to the target"))
            }
            b"FLUSHALL" | b"FUNCTION" => return Ok(Some(with_known_footer(words, &name)?)),
            b"MOVE" => bail!(refused(&words, "Ordo has one database")),
            b"COPY" if words.iter().skip(3).any(|word| is(word, "DB")) => {
                bail!(refused(&words, "Ordo has one database"))
            }
            _ if self.database != self.wanted && !self.leaves_databases_out => bail!(refused(
                &words,
                &format!(
                    "it is of database {}, and {} is imported: --database says that others are left out",
                    self.database, self.wanted
                )
            )),
            _ if self.database != self.wanted => self.left_out += 1,
            b"EVAL" | b"EVALSHA" | b"FCALL" => {
                bail!(refused(
                    &words,
                    "scripts must be replicated by their effects: use a source since Redis 7.0"
                ))
            }
            b"HEXPIRE" | b"HPEXPIRE" | b"HEXPIREAT" | b"HPEXPIREAT" | b"HPERSIST"
                if self.keep_expiring_fields =>
            {
                self.left_out += 1;
            }
            b"HSETEX" if self.keep_expiring_fields => return fields_of_hsetex(words).map(Some),
            _ => {
                self.delay(&name, &mut words, now_ms)?;
                if let Err(error) = table::resolve(&words) {
                    let Reply::Error(text) = error.reply(&words, Caller::Block) else {
                        unreachable!("an error")
                    };
                    bail!(refused(&words, &text));
                }
                return Ok(Some(words));
            }
        }
        Ok(None)
    }

    /// Puts dates off, and terms into dates.
    fn delay(&self, name: &[u8], words: &mut Vec<Blob>, now_ms: u64) -> Result<()> {
        let time = match name {
            b"EXPIRE" => SECONDS,
            b"PEXPIRE" => MILLISECONDS,
            b"EXPIREAT" => DATE,
            b"PEXPIREAT" => DATE_MS,
            b"SET" | b"GETEX" => {
                let at = words.iter().skip(2).position(|word| Time::of(word).is_some());
                // SET key EX ...: the value itself may look like an option.
                let at = match (at, name) {
                    (Some(0), b"SET") => {
                        words.iter().skip(3).position(|word| Time::of(word).is_some()).map(|at| at + 3)
                    }
                    (at, _) => at.map(|at| at + 2),
                };
                if let Some(at) = at
                    && let Some(time) = Time::of(&words[at])
                    && let Some(number) = words.get(at + 1)
                {
                    words[at + 1] = time.delayed(number, now_ms)?;
                    words[at] = Blob::from("PXAT");
                }
                return Ok(());
            }
            b"SETEX" | b"PSETEX" => {
                let [_, key, term, value] = &words[..] else {
                    return Ok(());
                };
                let time = if name == b"SETEX" { SECONDS } else { MILLISECONDS };
                let date_ms = time.delayed(term, now_ms)?;
                *words = vec![Blob::from("SET"), key.clone(), value.clone(), Blob::from("PXAT"), date_ms];
                return Ok(());
            }
            b"RESTORE" => return restore(words, now_ms),
            _ => return Ok(()),
        };
        if let Some(number) = words.get(2) {
            words[2] = time.delayed(number, now_ms)?;
            words[0] = Blob::from("PEXPIREAT");
        }
        Ok(())
    }
}

fn refused(words: &[Blob], why: &str) -> anyhow::Error {
    const SHOWN_MAX: usize = 3;
    let shown: Vec<String> = words.iter().take(SHOWN_MAX).map(|word| quoted(word)).collect();
    anyhow!("the source sent a command that can't be applied: {}: {why}", shown.join(" "))
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] ...
fn restore(words: &mut Vec<Blob>, now_ms: u64) -> Result<()> {
    let [_, _, ttl, payload, options @ ..] = &words[..] else {
        return Ok(());
    };
    let is_date = options.iter().any(|word| is(word, "ABSTTL"));
    let date_ms = match &ttl[..] {
        b"0" => None,
        ttl => Some(Time { unit_ms: 1, is_date }.delayed(ttl, now_ms)?),
    };
    // No field of a hash is left out: the source says when one has expired.
    let payload = restorable_dump(payload, 0).ok_or_else(|| refused(words, "its value makes no sense"))?;
    words[3] = Blob::from(payload);
    if let Some(date_ms) = date_ms {
        words[2] = date_ms;
        if !is_date {
            words.push(Blob::from("ABSTTL"));
        }
    }
    Ok(())
}

/// FUNCTION RESTORE of a newer version has the same form under another number.
fn with_known_footer(mut words: Vec<Blob>, name: &[u8]) -> Result<Vec<Blob>> {
    if name == b"FUNCTION" && words.len() > 2 && is(&words[1], "RESTORE") {
        let payload = restorable_dump(&words[2], 0);
        words[2] = payload.map(Blob::from).ok_or_else(|| refused(&words, "its payload makes no sense"))?;
    }
    Ok(words)
}

/// HSETEX key [FNX|FXX] [time] FIELDS count field value ...: the fields, without their time.
fn fields_of_hsetex(words: Vec<Blob>) -> Result<Vec<Blob>> {
    let at = words.iter().skip(2).position(|word| is(word, "FIELDS"));
    let fields = at.and_then(|at| words.get(at + 4..));
    let fields =
        fields.filter(|fields| !fields.is_empty()).ok_or_else(|| refused(&words, "it has no fields"))?;
    Ok([Blob::from("HSET"), words[1].clone()].into_iter().chain(fields.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn translator() -> Translator {
        Translator {
            database: 0,
            wanted: 0,
            leaves_databases_out: true,
            in_transaction: false,
            keep_expiring_fields: true,
            is_merging: false,
            left_out: 0,
            is_asked: false,
        }
    }

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = line.split(' ').map(Blob::from).collect();
        let got = match translator().translate(words, NOW_MS) {
            Ok(Some(words)) => words
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect::<Vec<_>>()
                .join(" "),
            Ok(None) => "nothing".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let expected = expected.replace("1M", &(NOW_MS + DELAY_MS).to_string());
        match expected.strip_suffix("...") {
            Some(start) => assert!(got.starts_with(start), "{line}: {got}"),
            None => assert_eq!(got, expected, "{line}"),
        }
    }

    #[test]
    fn dates_are_delayed_and_terms_become_dates() {
        check("SET k v", "SET k v");
        check("SET k v PXAT 1000000", "SET k v PXAT 1M");
        check("set k v keepttl", "set k v keepttl");
        check("SET k EX EX 0", "SET k EX PXAT 1M");
        check("SET k PX", "SET k PX");
        check("SET k v EXAT 1000 NX", "SET k v PXAT 1M NX");
        check("SETEX k 0 v", "SET k v PXAT 1M");
        check("PSETEX k 0 v", "SET k v PXAT 1M");
        check("GETEX k PXAT 1000000", "GETEX k PXAT 1M");
        check("EXPIRE k 0", "PEXPIREAT k 1M");
        check("PEXPIREAT k 1000000 GT", "PEXPIREAT k 1M GT");
        check("EXPIREAT k x", "the source sent a time that is none: \"x\"");
    }

    #[test]
    fn what_is_no_data_is_left_out_and_what_cannot_be_applied_is_refused() {
        for line in ["PING", "MULTI", "EXEC", "REPLCONF GETACK *", "PUBLISH c m", "HPEXPIREAT h 5 FIELDS 1 f"]
        {
            check(line, "nothing");
        }
        check("HSETEX h PXAT 5 FIELDS 1 f v", "HSET h f v");
        check("FLUSHALL", "FLUSHALL");
        let mut merging = Translator { is_merging: true, ..translator() };
        assert!(merging.translate(vec![Blob::from("FLUSHALL")], NOW_MS).is_err());
        for line in ["SWAPDB 0 1", "MOVE k 1", "COPY a b DB 1", "EVAL x 0", "JSON.SET k $ 1"] {
            check(line, "the source sent a command that can't be applied: ...");
        }
    }

    #[test]
    fn commands_of_other_databases_are_left_out() {
        let mut translator = translator();
        let mut got = Vec::new();
        for line in ["SELECT 1", "SET k v", "SELECT 0", "SET k w"] {
            let words = line.split(' ').map(Blob::from).collect();
            got.extend(translator.translate(words, NOW_MS).expect("known"));
        }
        assert_eq!(got, [["SET", "k", "w"].map(Blob::from)]);
        assert_eq!(translator.left_out, 1);
        translator.database = 1;
        for line in ["MOVE k 0", "COPY a b DB 0"] {
            let words = line.split(' ').map(Blob::from).collect();
            assert!(translator.translate(words, NOW_MS).is_err(), "{line}");
        }
        translator.leaves_databases_out = false;
        assert!(translator.translate(["SET", "k", "v"].map(Blob::from).to_vec(), NOW_MS).is_err());
    }
}
