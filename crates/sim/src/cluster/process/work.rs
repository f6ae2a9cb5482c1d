//! What a process's virtual workers do, and what they hear from other partitions.

use super::*;

impl Turn<'_> {
    /// Follows what the node told its engines.
    pub(super) fn listen(&mut self) -> Result<(), Violation> {
        let me = Address::Host(self.host);
        for (partition, lane) in &mut self.process.lanes {
            if !self.system.plan.judged {
                lane.engine.take();
                continue;
            }
            let core = &mut *self.core;
            self.system.partitions[usize::from(partition.0)].listen(
                *partition,
                &mut lane.watch,
                &lane.engine,
                &mut self.system.epochs,
                |text| core.note(me, || format!("{partition} {}", text())),
            )?;
        }
        advance(&mut self.system.partitions)?;
        let process = &mut *self.process;
        let end = process.node.confirmed();
        if self.system.plan.judged && end.epoch > process.confirmed {
            process.confirmed = end.epoch;
            let local = process.lanes.keys().copied();
            let true_ms = EPOCH_MS + self.core.now_ns() / 1_000_000;
            let is_healed = self.core.healed_ns().is_some();
            self.system.epochs.confirmed(end, local, true_ms, is_healed)?;
        }
        Ok(())
    }

    /// Wakes idle workers: there may be something for them.
    pub(super) fn wake(&mut self) {
        let now_ns = self.core.now_ns();
        for number in 0..self.process.workers.len() {
            self.wake_worker(number, now_ns);
        }
    }

    pub(super) fn wake_worker(&mut self, number: usize, now_ns: u64) {
        let worker = &mut self.process.workers[number];
        if std::mem::take(&mut worker.idle) {
            let after_ns = worker.busy_until_ns.saturating_sub(now_ns);
            let jitter_ns = if self.system.plan.jitter { self.core.draw.below(3_000) } else { 0 };
            let timer = Timer::Worker(number as u16);
            self.core.set_timer(Address::Host(self.host), after_ns + jitter_ns, timer);
        }
    }

    /// A worker steps until something else is due.
    pub(super) fn step(&mut self, number: u16) -> Result<(), Violation> {
        let place = usize::from(number);
        let me = self.me();
        let costs = self.system.plan.costs;
        let operation_ns = costs.operation_ns(self.system.plan.engine);
        let busy_ns = self.process.workers[place].busy_until_ns.saturating_sub(self.core.now_ns());
        if busy_ns > 0 {
            self.core.set_timer(me, busy_ns, Timer::Worker(number));
            return Ok(());
        }
        for turn in 1.. {
            if !self.step_once(place)? {
                self.process.workers[place].idle = true;
                if turn > 1 {
                    self.wake_another(place);
                }
                break;
            }
            let cost_ns = self.cost_ns(operation_ns + self.system.work.take_ns());
            let now_ns = self.core.now_ns();
            self.process.workers[place].busy_until_ns = now_ns + cost_ns;
            self.wake_another(place);
            if turn >= STEPS_AT_ONCE || !self.core.advance(self.host, cost_ns) {
                self.core.set_timer(me, cost_ns, Timer::Worker(number));
                break;
            }
        }
        self.look_at_replay();
        if !self.process.readable.is_empty() {
            self.run_reads()?;
        }
        self.resubmit()
    }

    /// Steps the engines in turn, until one has something to do. False if none has.
    pub(super) fn step_once(&mut self, worker: usize) -> Result<bool, Violation> {
        let count = self.process.engines.len();
        for _ in 0..count {
            let turn = self.process.turn;
            self.process.turn = (turn + 1) % count;
            let (partition, engine) = self.process.engines[turn].clone();
            let mut committed: Vec<Committed> = Vec::new();
            let progress = engine.step(WorkerId(worker), Budget::ONE, &mut committed);
            self.system.tally.operations += 1;
            for committed in committed {
                self.committed(partition, committed)?;
            }
            if progress == Progress::Worked {
                self.exchange()?;
                return Ok(true);
            }
        }
        self.exchange()
    }

    /// Takes what the engines have to say to each other to its place. Whether any was told anything.
    pub(super) fn exchange(&mut self) -> Result<bool, Violation> {
        if !self.system.plan.across {
            return Ok(false);
        }
        let mut sent = Vec::new();
        let twins = self.process.node.twins();
        let told = exchange(&self.process.engines, twins, &mut sent);
        if !sent.is_empty() {
            let now_ms = self.now_ms();
            let process = &mut *self.process;
            process.node.say(sent, now_ms, &mut process.effects);
            self.perform()?;
        }
        Ok(told)
    }

    /// What a worker did may have made work for an idle one.
    pub(super) fn wake_another(&mut self, me: usize) {
        let workers = &self.process.workers;
        let idle = (0..workers.len()).find(|&other| other != me && workers[other].idle);
        let Some(idle) = idle else { return };
        let has_work = |lane: &Lane| {
            let waiting = lane.engine.waiting();
            waiting.light + waiting.heavy > 0
        };
        if self.process.lanes.values().any(has_work) {
            self.wake_worker(idle, self.core.now_ns());
        }
    }
}
