//! What a host's disk holds of its node's journal.

use crate::draw::Draw;
use crate::world::End;
use order::consensus::Kept;
use order::{GroupImage, GroupImages};

/// Records, and how many of them a power cut leaves at least.
#[derive(Default)]
pub(super) struct Journal {
    records: Vec<Vec<Kept>>,
    synced: usize,
}

impl Journal {
    pub fn append(&mut self, kept: Vec<Kept>) -> u64 {
        self.records.push(kept);
        self.records.len() as u64
    }

    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    pub fn synced(&mut self, record: u64) {
        self.synced = self.synced.max(record as usize);
    }

    pub fn ended(&mut self, end: End, draw: &mut Draw) {
        if end == End::PowerLost {
            let unsynced = self.records.len() - self.synced;
            let left = draw.below(1 + unsynced as u64) as usize;
            self.records.truncate(self.synced + left);
        }
        self.synced = self.records.len();
    }

    pub fn images(&self) -> GroupImages {
        let mut images = GroupImages::new();
        for kept in self.records.iter().flatten() {
            let image = images.entry(kept.partition).or_default();
            if let Some(base) = &kept.base {
                image.base = base.clone();
                image
                    .entries
                    .retain(|entry| entry.index > base.index && !kept.reset);
            }
            if let Some(first) = kept.entries.first() {
                image.entries.retain(|entry| entry.index < first.index);
                image.entries.extend(kept.entries.iter().cloned());
            }
            image.hard_state = kept.hard_state.unwrap_or(image.hard_state);
        }
        images
    }
}
