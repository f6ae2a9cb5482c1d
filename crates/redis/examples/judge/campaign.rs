//! The search for programs with many blocks for their steps.

use crate::grammar::{Chance, Grammar, NODES_MAX, Tree};
use crate::worker::{Ended, Worker};
use std::time::{Duration, Instant};

/// What every run may take besides: starting, and remembering what it ran.
const BLOCKS_BESIDES: u64 = 1_000_000;
/// What compiling a byte of a program may take besides: it happens once, before there are steps.
const BLOCKS_PER_SOURCE_BYTE: u64 = 50;
/// A run that ends earlier counts as so many steps: whole thousands are counted.
const STEPS_MIN: u64 = 1000;
/// Programs that are kept because they reached new places.
const NOVEL_MAX: usize = 2000;
/// Runs that shrinking one program may take.
const SHRINKING_RUNS_MAX: usize = 150;
/// The time that shrinking one program may take: one that hangs takes all of the worker's patience each time.
const SHRINKING_MAX: Duration = Duration::from_secs(120);

/// What is wrong with a program, or how near to that it comes.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// Blocks for each step, beyond what every run may take.
    Cost(f64),
    /// It was stopped: more than any bound allows.
    Exceeded,
    /// It ended the process (by a crash, a panic, or an error of memory that a sanitizer saw), or hung it.
    Died(String),
}

impl Judgement {
    pub fn cost(&self) -> f64 {
        match self {
            Judgement::Cost(cost) => *cost,
            Judgement::Exceeded | Judgement::Died(_) => f64::INFINITY,
        }
    }
    /// Whether the judge fails by it. A process that ended or hung is a failure whatever the bound is.
    pub fn is_failure(&self, bound: f64) -> bool {
        match self {
            Judgement::Cost(cost) => *cost > bound,
            Judgement::Exceeded | Judgement::Died(_) => true,
        }
    }
}

/// A program with its judgement.
#[derive(Clone, Debug)]
pub struct Judged {
    pub body: String,
    pub judgement: Judgement,
    pub steps: u64,
    pub blocks: u64,
    pub cpu_ns: u64,
    pub is_error: bool,
    pub is_novel: bool,
}

impl Judged {
    /// Nanoseconds for each step, in this build.
    pub fn ns_per_step(&self) -> f64 {
        self.cpu_ns as f64 / self.steps.max(STEPS_MIN) as f64
    }
    pub fn line(&self) -> String {
        match &self.judgement {
            Judgement::Cost(cost) => format!(
                "{cost:9.1} blocks a step ({} blocks, {} steps, {:.1} ns a step{})",
                self.blocks,
                self.steps,
                self.ns_per_step(),
                if self.is_error { ", an error" } else { "" }
            ),
            Judgement::Exceeded => "   stopped: too many blocks".to_owned(),
            Judgement::Died(how) => format!("   the process died: {how}"),
        }
    }
}

/// The blocks after which a run is stopped: `most` for each step.
pub fn blocks_max(steps_max: u64, most: u64) -> u64 {
    BLOCKS_BESIDES + steps_max.saturating_mul(most)
}

pub fn judge(worker: &mut Worker, places: &mut [bool], body: String) -> Judged {
    let mut judged = Judged {
        judgement: Judgement::Exceeded,
        steps: 0,
        blocks: 0,
        cpu_ns: 0,
        is_error: true,
        is_novel: false,
        body,
    };
    match worker.run(judged.body.as_bytes()) {
        Ended::Exceeded => {}
        Ended::Died(how) => judged.judgement = Judgement::Died(how),
        Ended::Taken(taken) => {
            let besides = BLOCKS_BESIDES + BLOCKS_PER_SOURCE_BYTE * judged.body.len() as u64;
            let blocks = taken.blocks.saturating_sub(besides);
            judged.judgement = Judgement::Cost(blocks as f64 / taken.steps.max(STEPS_MIN) as f64);
            (judged.steps, judged.blocks) = (taken.steps, taken.blocks);
            (judged.cpu_ns, judged.is_error) = (taken.cpu_ns, taken.is_error);
            for place in taken.fresh {
                if let Some(seen) = places.get_mut(place as usize) {
                    judged.is_novel |= !*seen;
                    *seen = true;
                }
            }
        }
    }
    judged
}

pub struct Campaign<'a> {
    pub worker: Worker,
    pub grammar: &'a Grammar,
    chance: Chance,
    places: Vec<bool>,
    /// The most expensive program that has a rule, for each.
    champions: Vec<Option<(Judged, Tree)>>,
    novel: Vec<Tree>,
    pub slowest: Option<Judged>,
    pub runs: u64,
}

impl<'a> Campaign<'a> {
    pub fn new(worker: Worker, grammar: &'a Grammar, seed: u64) -> Campaign<'a> {
        Campaign {
            worker,
            grammar,
            chance: Chance(seed),
            places: vec![false; 1 << 18],
            champions: vec![None; grammar.rules()],
            novel: Vec::new(),
            slowest: None,
            runs: 0,
        }
    }

    pub fn judge(&mut self, body: String) -> Judged {
        self.runs += 1;
        judge(&mut self.worker, &mut self.places, body)
    }

    fn champion(&mut self) -> Option<Tree> {
        let mut best: Option<&(Judged, Tree)> = None;
        for _ in 0..3 {
            let index = self.chance.below(self.champions.len());
            if let Some(found) = &self.champions[index]
                && best.is_none_or(|(best, _)| best.judgement.cost() < found.0.judgement.cost())
            {
                best = Some(found);
            }
        }
        best.map(|(_, tree)| tree.clone())
    }

    fn pick(&mut self) -> Tree {
        let kind = self.chance.below(5);
        let kept = match kind {
            0 => None,
            1 | 2 => self.champion(),
            _ if self.novel.is_empty() => None,
            _ => Some(self.novel[self.chance.below(self.novel.len())].clone()),
        };
        kept.unwrap_or_else(|| {
            let height = 3 + self.chance.below(7);
            self.grammar.grow(b'P', height, &mut self.chance)
        })
    }

    /// Tries programs for so long, or so many, or until one ends the process.
    pub fn search(&mut self, time: Duration, runs_max: u64, bound: f64) {
        let begun = Instant::now();
        let mut best = 0.0;
        while begun.elapsed() < time && self.runs < runs_max {
            let mut tree = self.pick();
            for _ in 0..1 + self.chance.below(4) {
                let other = self.pick();
                self.grammar.mutate(&mut tree, &other, &mut self.chance);
            }
            if tree.nodes() > NODES_MAX {
                continue;
            }
            let judged = self.judge(self.grammar.text(&tree));
            let cost = judged.judgement.cost();
            if cost > best {
                best = cost;
                println!("after {:5} runs: {}", self.runs, judged.line());
                if judged.judgement.is_failure(bound) {
                    println!("    {}", judged.body);
                }
            }
            if self.slowest.as_ref().is_none_or(|slowest| slowest.ns_per_step() < judged.ns_per_step())
                && judged.steps > 100_000
            {
                self.slowest = Some(judged.clone());
            }
            if judged.is_novel {
                if self.novel.len() < NOVEL_MAX {
                    self.novel.push(tree.clone());
                } else {
                    let place = self.chance.below(NOVEL_MAX);
                    self.novel[place] = tree.clone();
                }
            }
            let is_death = matches!(judged.judgement, Judgement::Died(_));
            let champions = &mut self.champions;
            let mut rules = Vec::new();
            tree.rules(&mut |rule| rules.push(rule));
            for rule in rules {
                let champion = &mut champions[rule];
                if champion.as_ref().is_none_or(|(old, _)| old.judgement.cost() < cost) {
                    *champion = Some((judged.clone(), tree.clone()));
                }
            }
            // Its changes would die, too.
            if is_death {
                break;
            }
        }
    }

    /// The most expensive programs, up to so many. Where a bound is given, only those above it are shrunk:
    /// that takes long.
    pub fn worst(&mut self, count: usize, bound: f64) -> Vec<Judged> {
        let mut all: Vec<(Judged, Tree)> = self.champions.iter().flatten().cloned().collect();
        all.sort_by(|(a, _), (b, _)| b.judgement.cost().total_cmp(&a.judgement.cost()));
        all.dedup_by(|(a, _), (b, _)| a.body == b.body);
        let mut worst: Vec<Judged> = Vec::new();
        for (judged, tree) in all.into_iter().take(3 * count) {
            if worst.len() >= count {
                break;
            }
            let shrunk = match judged.judgement.is_failure(bound) {
                true => self.shrink(judged, tree, bound),
                false if bound.is_infinite() => self.shrink(judged, tree, 0.0),
                false => judged,
            };
            if worst.iter().all(|other| other.body != shrunk.body) {
                worst.push(shrunk);
            }
        }
        worst.sort_by(|a, b| b.judgement.cost().total_cmp(&a.judgement.cost()));
        worst
    }

    /// A smaller program that is nearly as expensive, and above the bound.
    fn shrink(&mut self, mut judged: Judged, mut tree: Tree, bound: f64) -> Judged {
        let enough = (judged.judgement.cost() * 0.85).max(bound);
        let begun = Instant::now();
        let mut runs = 0;
        let mut index = 0;
        while index < tree.nodes() && runs < SHRINKING_RUNS_MAX && begun.elapsed() < SHRINKING_MAX {
            let node = tree.at(index).clone();
            let mut is_smaller = false;
            for smaller in self.grammar.smaller(&node) {
                if smaller.nodes() >= node.nodes()
                    || runs >= SHRINKING_RUNS_MAX
                    || begun.elapsed() >= SHRINKING_MAX
                {
                    continue;
                }
                let mut tried = tree.clone();
                *tried.at_mut(index) = smaller;
                let again = self.judge(self.grammar.text(&tried));
                runs += 1;
                if again.judgement.cost() >= enough {
                    (judged, tree) = (again, tried);
                    is_smaller = true;
                    break;
                }
            }
            if !is_smaller {
                index += 1;
            }
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_failures_whatever_the_bound_is() {
        let died = Judgement::Died("signal: 11".to_owned());
        for bound in [1.0, f64::INFINITY] {
            assert!(died.is_failure(bound) && Judgement::Exceeded.is_failure(bound));
            assert!(!Judgement::Cost(1.0).is_failure(bound));
        }
        assert!(Judgement::Cost(1.5).is_failure(1.0));
    }
}
