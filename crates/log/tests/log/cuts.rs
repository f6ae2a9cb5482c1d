//! The power goes at every single operation of the disk, in a life of the journal and in the recovery from
//! that.

use crate::seeds;
use crate::virtual_disk::{VirtualDisk, VirtualFile};
use crate::{Opened, Source, State, open};
use log::{Disk, DiskFile, Journal};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const SEGMENT_BYTES: u64 = 5_000;
const NEVER: u64 = u64::MAX;

/// A virtual disk whose power goes before a given operation. Everything fails then.
#[derive(Clone)]
struct CutDisk {
    disk: VirtualDisk,
    operations: Arc<AtomicU64>,
    cut_at: Arc<AtomicU64>,
}

struct CutFile {
    disk: CutDisk,
    file: VirtualFile,
}

impl CutDisk {
    fn new(seed: u64, cut_at: u64) -> CutDisk {
        CutDisk {
            disk: VirtualDisk::new(seed),
            operations: Arc::default(),
            cut_at: Arc::new(AtomicU64::new(cut_at)),
        }
    }

    /// The power is back, and goes again before this operation.
    fn restore(&self, cut_at: u64) {
        self.operations.store(0, SeqCst);
        self.cut_at.store(cut_at, SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.operations.load(SeqCst) > self.cut_at.load(SeqCst)
    }

    fn operate(&self) -> io::Result<()> {
        let operation = self.operations.fetch_add(1, SeqCst);
        if operation == self.cut_at.load(SeqCst) {
            self.disk.crash();
        }
        match self.is_cut() {
            true => Err(io::Error::other("the power is gone")),
            false => Ok(()),
        }
    }

    fn file(&self, file: VirtualFile) -> CutFile {
        CutFile { disk: self.clone(), file }
    }
}

impl Disk for CutDisk {
    type File = CutFile;

    fn list(&self) -> io::Result<Vec<String>> {
        self.operate()?;
        self.disk.list()
    }
    fn create(&self, name: &str, len_bytes: u64) -> io::Result<CutFile> {
        self.operate()?;
        Ok(self.file(self.disk.create(name, len_bytes)?))
    }
    fn open(&self, name: &str) -> io::Result<CutFile> {
        self.operate()?;
        Ok(self.file(self.disk.open(name)?))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.operate()?;
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operate()?;
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.operate()?;
        self.disk.sync_dir()
    }
}

impl DiskFile for CutFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.operate()?;
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.disk.operate()?;
        self.file.read_at(offset, bytes)
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.disk.operate()?;
        self.file.len_bytes()
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.operate()?;
        self.file.sync()
    }
}

/// A life until the power goes: the same for the same seed, but for its length.
struct Life {
    source: Source,
    /// The state after each record, and the last record that is known to be durable.
    states: Vec<State>,
    durable: usize,
    removed: usize,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut source = Source::new(seed);
        source.base_chance = 0.3;
        Life { source, states: vec![State::new()], durable: 0, removed: 0 }
    }

    fn live(&mut self, journal: &mut Journal<CutDisk>, rounds: usize) -> io::Result<()> {
        for round in 0..rounds {
            let last = self.states.last().unwrap();
            let next = self.source.round(last);
            let state = next.apply(last);
            let before = journal.status().last;
            // Should the power go here, the record may be on the disk or not.
            self.states.push(state);
            if next.append(journal)?.position == before {
                self.states.pop();
            }
            match round % 6 {
                1 | 3 => {
                    journal.sync()?;
                    self.durable = self.states.len() - 1;
                }
                2 => drop(journal.preparer().prepare_next()?),
                4 => {
                    if let Some(truncation) = journal.truncation() {
                        let truncated = truncation.run()?;
                        self.removed += truncated.segments;
                        journal.truncated(truncated);
                    }
                }
                5 => drop(journal.write_marker()?),
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&mut self, opened: &Opened<CutDisk>) {
        let found = opened.journal.status().last.0 as usize;
        assert!(
            (self.durable..self.states.len()).contains(&found),
            "record {found}, with {} durable",
            self.durable
        );
        assert_eq!(opened.state, self.states[found], "after record {found}");
        self.states.truncate(found + 1);
        self.durable = found;
    }
}

/// Returns the life, and whether the power went before its end.
fn life(disk: &CutDisk, seed: u64) -> (Life, bool) {
    let mut life = Life::new(seed);
    let ended =
        open(disk, SEGMENT_BYTES, 1).is_ok_and(|mut opened| life.live(&mut opened.journal, 60).is_ok());
    assert_eq!(ended, !disk.is_cut());
    (life, !ended)
}

#[test]
fn the_power_may_go_at_every_operation() {
    let (mut lives, mut removed) = (0, 0);
    for seed in seeds(4) {
        println!("ORDO_SEED={seed}");
        for cut_at in 0.. {
            let disk = CutDisk::new(seed ^ cut_at << 32, cut_at);
            let (mut life, cut) = life(&disk, seed);
            // The recovery meets the same fate, a few operations later each time.
            for again in 0..cut_at % 4 {
                disk.restore(again * 7 + cut_at % 7);
                drop(open(&disk, SEGMENT_BYTES, 2));
                if !disk.is_cut() {
                    disk.disk.crash();
                }
            }
            disk.restore(NEVER);
            let mut opened = open(&disk, SEGMENT_BYTES, 3)
                .unwrap_or_else(|error| panic!("cut before operation {cut_at}: {error}"));
            life.check(&opened);
            life.live(&mut opened.journal, 12).unwrap();
            drop(opened);
            let killed = open(&disk, SEGMENT_BYTES, 4).unwrap();
            life.durable = life.states.len() - 1;
            life.check(&killed);
            lives += 1;
            removed += life.removed;
            if !cut {
                break;
            }
        }
    }
    println!("{lives} lives, {removed} segments removed");
    assert!(std::env::var("ORDO_SEED").is_ok() || lives > 500 && removed > 500);
}
