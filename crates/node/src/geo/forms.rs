//! The bytes of a site's log entries, and of the messages that sites exchange.

use bytes::Bytes;
use certify::pcsi::{Record, SiteMap};
use std::collections::BTreeMap;
use txn::NodeId;
use txn::codec::{Reader, put_bytes, put_varint};

/// An entry of the log: the protocol's records are most of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogEntry {
    /// The number of this directory.
    Directory(u64),
    /// The directories with which the system was founded.
    Founders(BTreeMap<NodeId, u64>),
    Record(Record),
    /// The others have fenced the site: a process that finds this must not begin.
    Fenced,
}

/// A message of a site to another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// Its directory; whether it has a log; and with which directories the system was founded, if it knows.
    Hello(Hello),
    /// A letter, or the last part of one.
    Letter(Bytes),
    /// A part of a letter that has further ones: the letter's number, and where the part begins.
    Part { number: u64, offset: u64, bytes: Bytes },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hello {
    pub directory: u64,
    pub has_log: bool,
    pub founders: BTreeMap<NodeId, u64>,
}

const DIRECTORY: u8 = 1;
const FOUNDERS: u8 = 2;
const RECORD: u8 = 3;
const FENCED_ENTRY: u8 = 4;

impl LogEntry {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            LogEntry::Directory(directory) => {
                let mut out = vec![DIRECTORY];
                put_varint(&mut out, *directory);
                out
            }
            LogEntry::Founders(founders) => {
                let mut out = vec![FOUNDERS];
                put_directories(&mut out, founders);
                out
            }
            LogEntry::Record(record) => [&[RECORD], &record.encode()[..]].concat(),
            LogEntry::Fenced => vec![FENCED_ENTRY],
        }
    }

    pub fn decode(bytes: &[u8], sites: &SiteMap) -> Option<LogEntry> {
        let (&tag, rest) = bytes.split_first()?;
        let reader = &mut Reader::new(rest);
        let entry = match tag {
            DIRECTORY => LogEntry::Directory(reader.varint()?),
            FOUNDERS => LogEntry::Founders(take_directories(reader)?),
            RECORD => return Record::decode(rest, sites).map(LogEntry::Record),
            FENCED_ENTRY => LogEntry::Fenced,
            _ => return None,
        };
        reader.is_empty().then_some(entry)
    }
}

fn put_directories(out: &mut Vec<u8>, directories: &BTreeMap<NodeId, u64>) {
    put_varint(out, directories.len() as u64);
    for (site, &directory) in directories {
        put_varint(out, u64::from(site.0));
        put_varint(out, directory);
    }
}

fn take_directories(reader: &mut Reader<'_>) -> Option<BTreeMap<NodeId, u64>> {
    let mut directories = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let site = NodeId(u16::try_from(reader.varint()?).ok()?);
        directories.insert(site, reader.varint()?).is_none().then_some(())?;
    }
    Some(directories)
}

const HELLO: u8 = 1;
const LETTER: u8 = 2;
const PART: u8 = 3;

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Frame::Hello(Hello { directory, has_log, founders }) => {
                out.extend([HELLO, u8::from(*has_log)]);
                put_varint(&mut out, *directory);
                put_directories(&mut out, founders);
            }
            Frame::Letter(bytes) => {
                out.push(LETTER);
                put_bytes(&mut out, bytes);
            }
            Frame::Part { number, offset, bytes } => {
                out.push(PART);
                put_varint(&mut out, *number);
                put_varint(&mut out, *offset);
                put_bytes(&mut out, bytes);
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let reader = &mut Reader::new(bytes);
        let frame = match reader.u8()? {
            HELLO => {
                let has_log = match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let (directory, founders) = (reader.varint()?, take_directories(reader)?);
                Frame::Hello(Hello { directory, has_log, founders })
            }
            LETTER => Frame::Letter(Bytes::copy_from_slice(reader.bytes()?)),
            PART => Frame::Part {
                number: reader.varint()?,
                offset: reader.varint()?,
                bytes: Bytes::copy_from_slice(reader.bytes()?),
            },
            _ => return None,
        };
        reader.is_empty().then_some(frame)
    }
}
