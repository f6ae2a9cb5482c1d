//! Blocks as fragments: one for each key, which executes what the block's commands do to this key.
//!
//! That is possible if every command of the block does something to each of its keys by itself
//! ([`PerKey`]): no command then needs what another one has found at another key, and none rolls back. At one
//! key they are executed in their order.

use super::{Block, ReplyRoom};
use crate::table::per_key::{PerKey, Plan};
use crate::table::{self, Data, Flags, Run};
use std::ops::Range;
use txn::fragments::{FragmentList, FragmentOutcome, FragmentPlan, FragmentValues, InTurn, reply_of};
use txn::{Blob, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments, Key, Note, Reply};

/// A block that does more to keys than this is executed as a whole.
const STEPS_MAX: usize = 256;
/// So is one with more commands that may read much: each fragment keeps its replies until all are there, and
/// only together are they bounded.
const LONG_READS_MAX: usize = 8;

/// What the fragments of a block do.
#[derive(Debug)]
pub(super) struct BlockPlan {
    commands: Vec<PlannedCommand>,
    /// The keys of the fragments.
    keys: Vec<Key>,
    /// For each command, and each of its keys: the fragment that executes this. In the order of the block.
    steps: Vec<Step>,
    /// Commands that may read much.
    long_reads: usize,
}

#[derive(Debug)]
struct PlannedCommand {
    name: &'static str,
    /// The places of its words behind the name among the block's arguments.
    words: Range<usize>,
    per_key: &'static PerKey,
    plan: Plan,
    /// How many steps it has.
    steps: usize,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    command: u16,
    /// The place of the key among the command's.
    place: u16,
    fragment: u16,
}

impl BlockPlan {
    /// The block that the arguments describe, if it can be executed in fragments.
    pub(super) fn fragments(args: &[Blob]) -> Option<Fragments> {
        let (block, commands) = Block::decode(args)?;
        if !block.watched.is_empty() || block.is_gathered || commands.len() > STEPS_MAX {
            return None;
        }
        let mut plan = BlockPlan {
            commands: Vec::with_capacity(commands.len()),
            keys: Vec::new(),
            steps: Vec::new(),
            long_reads: 0,
        };
        let mut list = FragmentList::new();
        for words in commands {
            plan.add(args, words, &mut list)?;
        }
        plan.keys = list.iter().map(|fragment| fragment.key.clone()).collect();
        Fragments::planned(list, plan)
    }

    /// Adds a command.
    fn add(&mut self, args: &[Blob], words: Range<usize>, list: &mut FragmentList) -> Option<()> {
        let command = table::resolve(&args[words.clone()]).ok()?.command;
        let (Run::Data(Data::PerKey(per_key)), [keys]) = (&command.run, command.keys) else {
            return None;
        };
        self.long_reads += usize::from(command.is(Flags::READONLY) && !command.is(Flags::FAST));
        if self.long_reads > LONG_READS_MAX {
            return None;
        }
        let words = words.start + 1..words.end;
        let plan = per_key.dateless_plan(&args[words.clone()])?;
        let kind = plan.kind;
        let before = self.steps.len();
        for (place, key) in per_key.keys(keys, &args[words.clone()]).enumerate() {
            let added = Fragment::independent(key, kind);
            let is_it = |old: &Fragment| old.hash() == added.hash() && old.key == added.key;
            let fragment = list.iter().position(is_it).unwrap_or(list.len());
            self.steps.push(Step {
                command: self.commands.len() as u16,
                place: place as u16,
                fragment: fragment as u16,
            });
            if self.steps.len() > STEPS_MAX {
                return None;
            }
            match list.get_mut(fragment) {
                None => list.push(added),
                // A write whose value is what the command says may still fail, and then the next command
                // finds what the record held before.
                Some(old) if old.kind != kind => old.kind = FragmentKind::Update,
                Some(_) => {}
            }
        }
        let steps = self.steps.len() - before;
        self.commands.push(PlannedCommand { name: command.name, words, per_key, plan, steps });
        Some(())
    }

    /// The steps of a fragment.
    fn steps_of(&self, fragment: usize) -> impl Iterator<Item = (usize, Step)> {
        let steps = self.steps.iter().copied().enumerate();
        steps.filter(move |(_, step)| usize::from(step.fragment) == fragment)
    }
}

impl FragmentPlan for BlockPlan {
    fn execute(&self, args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        let mut turn = InTurn::new(&self.keys[context.place], context);
        let mut execute = |step: Step| {
            let PlannedCommand { words, per_key, plan, .. } = &self.commands[usize::from(step.command)];
            turn.execute(per_key.operation(*plan, &args[words.clone()], usize::from(step.place)))
        };
        let mut steps = self.steps_of(context.place).map(|(_, step)| step);
        let value = match (steps.next(), steps.next()) {
            (Some(only), None) => execute(only),
            (first, second) => {
                // What has no room here has none among all: what is not short is a part of the replies.
                let mut room = ReplyRoom::new();
                let steps = first.into_iter().chain(second).chain(steps);
                let replies = steps.map(|step| room.admit(execute(step).into_reply()));
                Reply::Array(replies.collect()).into()
            }
        };
        Ok(turn.done(value))
    }

    fn reply(&self, args: &[Blob], values: FragmentValues) -> Reply {
        // What each step came to, in the order of the block.
        let mut of_steps: Vec<FragmentValue> = vec![FragmentValue::NIL; self.steps.len()];
        for (fragment, value) in values.into_iter().enumerate() {
            match (value, self.steps_of(fragment).count()) {
                (FragmentValue::Reply(Reply::Array(replies)), count) if count > 1 => {
                    for ((place, _), reply) in self.steps_of(fragment).zip(replies) {
                        of_steps[place] = reply.into();
                    }
                }
                (value, _) => {
                    for (place, _) in self.steps_of(fragment) {
                        of_steps[place] = value.clone();
                    }
                }
            }
        }
        let mut room = ReplyRoom::new();
        let mut of_steps = of_steps.into_iter();
        let replies = self.commands.iter().map(|command| {
            let values: FragmentValues = of_steps.by_ref().take(command.steps).collect();
            let reply = match values.iter().any(ReplyRoom::has_left_out) {
                true => super::TOO_LONG,
                false => reply_of(command.per_key.code, &args[command.words.clone()], values),
            };
            room.admit(reply)
        });
        Reply::Array(replies.collect())
    }

    fn notes_writes(&self) -> bool {
        true
    }

    /// In the order of the block's steps, under the commands' names.
    fn in_order(&self, notes: Vec<(u16, Vec<Note>)>) -> Vec<Note> {
        let mut of_steps: Vec<Vec<Note>> = vec![Vec::new(); self.steps.len()];
        for (fragment, notes) in notes {
            let mut steps = self.steps_of(usize::from(fragment));
            let mut now = None;
            for note in notes {
                match note {
                    // A step begins.
                    Note::Read => now = steps.next(),
                    note => of_steps[now.map_or(0, |(place, _)| place)].push(note),
                }
            }
        }
        let begun = self.steps.iter().zip(of_steps).flat_map(|(step, notes)| {
            let began = Note::Began(self.commands[usize::from(step.command)].name);
            std::iter::once(began).chain(notes)
        });
        begun.collect()
    }
}
