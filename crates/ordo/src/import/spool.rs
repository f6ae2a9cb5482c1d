//! A queue of bytes on the disk: what the source has sent and the target has not taken yet.
//!
//! It is a row of files without names. The one thread appends to the last; the other reads the first, and
//! drops it once it is read. So it takes no more room than what waits, and one file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A file with as many bytes gets no more.
const SEGMENT_BYTES: u64 = 64 << 20;

struct Segment {
    file: Arc<File>,
    bytes: u64,
}

#[derive(Default)]
struct State {
    segments: VecDeque<Segment>,
    /// Why nothing more comes.
    ended: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end at which bytes go in.
pub struct SpoolWriter {
    shared: Arc<Shared>,
    directory: PathBuf,
}

/// The end at which they come out. Its reads wait for bytes; an error says why no more come.
pub struct SpoolReader {
    shared: Arc<Shared>,
    /// How much of the first file is read.
    position: u64,
}

/// An empty queue in a directory.
pub fn spool(directory: PathBuf) -> (SpoolWriter, SpoolReader) {
    let shared = Arc::new(Shared::default());
    (SpoolWriter { shared: shared.clone(), directory }, SpoolReader { shared, position: 0 })
}

impl SpoolWriter {
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let last = self.shared.lock().segments.back().map(|last| (last.file.clone(), last.bytes));
        let (file, start) = match last.filter(|&(_, bytes)| bytes < SEGMENT_BYTES) {
            Some(last) => last,
            None => {
                let file = Arc::new(tempfile::tempfile_in(&self.directory)?);
                self.shared.lock().segments.push_back(Segment { file: file.clone(), bytes: 0 });
                (file, 0)
            }
        };
        file.write_all_at(bytes, start)?;
        if let Some(last) = self.shared.lock().segments.back_mut() {
            last.bytes += bytes.len() as u64;
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Nothing more comes behind what is in.
    pub fn end(self, why: String) {
        self.shared.lock().ended = Some(why);
        self.shared.changed.notify_one();
    }
}

impl SpoolReader {
    /// Reads what there is, or waits so long for anything; `None` if nothing came.
    pub fn read_for(&mut self, room: &mut [u8], patience: Duration) -> io::Result<Option<usize>> {
        let mut state = self.shared.lock();
        let mut has_waited = false;
        loop {
            if let Some(first) = state.segments.front() {
                let left = first.bytes - self.position;
                if left > 0 {
                    let file = first.file.clone();
                    drop(state);
                    let wanted = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let read = file.read_at(&mut room[..wanted], self.position)?;
                    self.position += read as u64;
                    return Ok(Some(read));
                }
                if first.bytes >= SEGMENT_BYTES {
                    state.segments.pop_front();
                    self.position = 0;
                    continue;
                }
            }
            if let Some(why) = &state.ended {
                return Err(io::Error::other(why.clone()));
            }
            if has_waited {
                return Ok(None);
            }
            let waited = self.shared.changed.wait_timeout(state, patience);
            (state, has_waited) = (waited.unwrap_or_else(PoisonError::into_inner).0, true);
        }
    }
}

impl Read for SpoolReader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.read_for(room, Duration::from_secs(1))? {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_and_then_the_end() {
        let (mut writer, mut reader) = spool(std::env::temp_dir());
        let room = &mut [0; 10];
        assert_eq!(reader.read_for(room, Duration::ZERO).expect("no end"), None);
        let piece: Vec<u8> = (0..=255).cycle().take(10 << 20).collect();
        let thread = std::thread::spawn(move || {
            for _ in 0..15 {
                writer.append(&piece).expect("written");
            }
            writer.end("that was all".to_owned());
        });
        let mut read = Vec::new();
        let error = reader.read_to_end(&mut read).expect_err("the end");
        assert_eq!(error.to_string(), "that was all");
        thread.join().expect("written");
        assert_eq!(read.len(), 150 << 20);
        let is_as_written = |(at, &byte): (usize, &u8)| byte == (at % (10 << 20) % 256) as u8;
        assert!(read.iter().enumerate().all(is_as_written));
        assert!(reader.shared.lock().segments.len() <= 1);
    }
}
