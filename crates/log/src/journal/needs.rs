//! Which records the groups' state is made of, so that the others can be removed.
//!
//! A group needs the record of its newest base, that of its newest hard state, and those with its entries
//! behind the base. The oldest of all these is the *oldest needed* record. It never goes back: a record that
//! is not needed any more will not be needed again.
//!
//! A crash may take what was not synced, and then the state is that of an earlier record, which needed more.
//! So only what the newest *durable* record does not need is free to go.

use super::image::{Found, Images};
use crate::kept::{HardState, Kept};
use std::collections::{BTreeMap, VecDeque};
use txn::{PartitionId, Position};

/// What every group needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Needs {
    groups: BTreeMap<PartitionId, Group>,
    /// The oldest record that the state is made of; the last one if no group needs any.
    oldest: Position,
    /// The same as of the last record that is known to be durable.
    oldest_durable: Position,
    /// Records behind that one with which the oldest needed record changed, and to what.
    changes: VecDeque<(Position, Position)>,
}

/// What a group needs, and what its next record must follow.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    marks: Marks,
    /// The records that brought the entries behind the base, oldest first; each begins where the previous one
    /// ends.
    runs: VecDeque<Run>,
}

/// The part of a group's state that every record may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    base: u64,
    /// The last entry's index; the base's without entries.
    last: u64,
    hard_state: HardState,
    /// The records of the base and of the hard state; [`Position::NONE`] without.
    base_record: Position,
    hard_state_record: Position,
}

/// Entries that one record brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    record: Position,
}

/// What a record will change, worked out before it is written.
pub(super) struct Plan {
    record: Position,
    steps: BTreeMap<PartitionId, Step>,
    /// The hard states that the record must hold, part by part.
    pub hard_states: Vec<Option<HardState>>,
    /// The oldest record that will be needed.
    pub oldest: Position,
}

/// What a record will change for a group.
struct Step {
    /// The group's marks with the record.
    marks: Marks,
    /// Entries of earlier records stay if they are before this index; 0 if none do.
    survive: u64,
    /// The record's own entries behind the base begin here, and go up to the last one.
    first: Option<u64>,
}

impl Needs {
    /// Those of a log that was read back, all of it durable, up to the record `last`.
    pub fn of(images: &Images, last: Position) -> Needs {
        let groups: BTreeMap<PartitionId, Group> =
            images.groups.iter().map(|(&partition, found)| (partition, Group::of(found))).collect();
        let mut needs = Needs { groups, oldest: last, oldest_durable: last, changes: VecDeque::new() };
        needs.oldest = needs.oldest_with(&BTreeMap::new(), last);
        needs.oldest_durable = needs.oldest;
        needs
    }

    /// What a record with this will change. An error says what does not follow.
    pub fn plan(&self, kept: &[&Kept], record: Position) -> Result<Plan, String> {
        let mut steps = BTreeMap::new();
        let mut hard_states = Vec::with_capacity(kept.len());
        for kept in kept {
            let step = steps.entry(kept.partition).or_insert_with(|| {
                let marks = self.groups.get(&kept.partition).map(|group| group.marks);
                Step::new(marks.unwrap_or_default())
            });
            let hard_state =
                step.follow(kept, record).map_err(|problem| format!("{}: {problem}", kept.partition))?;
            hard_states.push(hard_state);
        }
        Ok(Plan { record, oldest: self.oldest_with(&steps, record), steps, hard_states })
    }

    fn oldest_with(&self, steps: &BTreeMap<PartitionId, Step>, record: Position) -> Position {
        let stepped = steps.iter().filter_map(|(partition, step)| {
            let earlier = self
                .groups
                .get(partition)
                .and_then(|group| group.first_behind(step.marks.base, step.survive));
            step.marks.oldest(earlier.or(step.first.map(|_| record)))
        });
        let others = self.groups.iter().filter(|(partition, _)| !steps.contains_key(partition));
        let all = stepped.chain(others.filter_map(|(_, group)| group.oldest()));
        all.min().unwrap_or(record)
    }

    /// Notes that the planned record was written.
    pub fn written(&mut self, plan: Plan) {
        for (partition, step) in plan.steps {
            let group = self.groups.entry(partition).or_default();
            group.step(&step, plan.record);
        }
        if self.oldest != plan.oldest {
            self.oldest = plan.oldest;
            self.changes.push_back((plan.record, plan.oldest));
        }
    }

    /// Notes that everything up to a record is durable.
    pub fn synced(&mut self, durable: Position) {
        while let Some((_, oldest)) = self.changes.pop_front_if(|(record, _)| *record <= durable) {
            self.oldest_durable = oldest;
        }
    }

    /// The oldest record that must stay, whatever a crash takes.
    pub fn oldest_durable(&self) -> Position {
        self.oldest_durable
    }

    /// The group that needs the oldest record.
    pub fn pinned_by(&self) -> Option<PartitionId> {
        let oldest = |(&partition, group): (&PartitionId, &Group)| Some((group.oldest()?, partition));
        self.groups.iter().filter_map(oldest).min().map(|(_, partition)| partition)
    }
}

impl Group {
    fn of(found: &Found) -> Group {
        let (base_record, base) = match &found.base {
            Some((record, base)) => (*record, base.index),
            None => (Position::NONE, 0),
        };
        let (hard_state_record, hard_state) = found.hard_state.unwrap_or_default();
        let mut runs: VecDeque<Run> = VecDeque::new();
        for (record, entry) in &found.entries {
            if runs.back().is_none_or(|run| run.record != *record) {
                runs.push_back(Run { first: entry.index, record: *record });
            }
        }
        Group {
            marks: Marks {
                base,
                last: found.entries.back().map_or(base, |(_, entry)| entry.index),
                hard_state,
                base_record,
                hard_state_record,
            },
            runs,
        }
    }

    fn oldest(&self) -> Option<Position> {
        self.marks.oldest(self.runs.front().map(|run| run.record))
    }

    /// The record of the first entry behind `base`, of those before `end`.
    fn first_behind(&self, base: u64, end: u64) -> Option<Position> {
        let ends = self.runs.iter().skip(1).map(|run| run.first).chain([self.marks.last + 1]);
        let mut runs = self.runs.iter().zip(ends);
        let (run, _) = runs.find(|&(_, run_end)| run_end.min(end) > base + 1)?;
        (run.first < end).then_some(run.record)
    }

    fn step(&mut self, step: &Step, record: Position) {
        while self.runs.pop_back_if(|run| run.first >= step.survive).is_some() {}
        if let Some(first) = step.first {
            self.runs.push_back(Run { first, record });
        }
        self.marks = step.marks;
        // The first run goes when the base covers all of it.
        let Marks { base, last, .. } = self.marks;
        while let next = self.runs.get(1).map_or(last + 1, |run| run.first)
            && self.runs.pop_front_if(|_| next <= base + 1).is_some()
        {}
    }
}

impl Step {
    fn new(marks: Marks) -> Step {
        Step { marks, survive: u64::MAX, first: None }
    }

    /// Takes what a group wants kept. Returns the hard state that the record must hold with it. An error says
    /// what does not follow.
    fn follow(&mut self, kept: &Kept, record: Position) -> Result<Option<HardState>, String> {
        let marks = &mut self.marks;
        if kept.reset && kept.base.is_none() {
            return Err("a reset without a base".to_owned());
        }
        if let Some(base) = &kept.base {
            if base.index < marks.base {
                return Err(format!("a base at {} behind one at {}", base.index, marks.base));
            }
            if kept.reset {
                (self.survive, self.first) = (0, None);
            }
            marks.last = match kept.reset {
                true => base.index,
                false => marks.last.max(base.index),
            };
            marks.base = base.index;
            marks.base_record = record;
        }
        if let Some(first) = kept.entries.first().map(|entry| entry.index) {
            let agreed = marks.base.max(marks.hard_state.commit);
            let consecutive = (first..).zip(&kept.entries).all(|(index, entry)| entry.index == index);
            if !consecutive || first <= agreed || first > marks.last + 1 {
                return Err(format!(
                    "entries from {first} on, where {agreed} are agreed and {} are there",
                    marks.last
                ));
            }
            marks.last = first + kept.entries.len() as u64 - 1;
            self.survive = self.survive.min(first);
            self.first = Some(self.first.map_or(first, |own| own.min(first)));
        }
        if marks.last == marks.base {
            self.first = None;
        }
        self.first = self.first.map(|first| first.max(marks.base + 1));
        // A base takes the hard state with it, so that a group without news pins nothing older.
        let hard_state = kept.hard_state.or(kept.base.is_some().then_some(marks.hard_state));
        let hard_state = hard_state.map(|hard_state| HardState {
            // What a base covers is agreed.
            commit: hard_state.commit.max(marks.base),
            ..hard_state
        });
        if let Some(hard_state) = hard_state {
            marks.hard_state = hard_state;
            marks.hard_state_record = record;
        }
        if marks.hard_state.commit > marks.last {
            return Err(format!("{} entries agreed of {}", marks.hard_state.commit, marks.last));
        }
        Ok(hard_state)
    }
}

impl Marks {
    fn oldest(&self, entries: Option<Position>) -> Option<Position> {
        let records = [self.base_record, self.hard_state_record];
        let records = records.into_iter().filter(|&record| record != Position::NONE);
        records.chain(entries).min()
    }
}
