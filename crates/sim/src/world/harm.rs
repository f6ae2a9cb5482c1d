//! What faults do to the world, and how each of them ends.

use super::*;

impl<S: System> World<S> {
    pub(super) fn everyone(&self) -> (Vec<Address>, Vec<Address>) {
        let hosts = (0..self.core.hosts.len() as u16).map(Address::Host).collect();
        let clients = (0..self.core.clients).map(Address::Client).collect();
        (hosts, clients)
    }

    pub(super) fn fault(&mut self, index: usize) -> Result<(), Violation> {
        let fault = self.faults[index].fault.clone();
        self.core.witness(index as u64);
        self.core.note_fault(None, || fault.to_string());
        let now_ns = self.core.now_ns;
        let number = index as u64;
        let later = |core: &mut Core<S>, for_ms: u64, relief: Relief| {
            let at_ns = now_ns + for_ms * 1_000_000;
            if let Some(lasting) = relief.lasting() {
                let until_ns = core.lasting.entry(lasting).or_default();
                *until_ns = at_ns.max(*until_ns);
            }
            core.queue.add(at_ns, Event::Relief(relief));
        };
        match fault {
            Fault::Crash { host, power, at_disk_operation, flip_bit, lose_disk, down_ms } => {
                let there = &mut self.core.hosts[usize::from(host)];
                if self.nodes[usize::from(host)].is_none() {
                    return Ok(());
                }
                there.death = Some(Death { power, flip_bit, lose_disk, down_ms });
                if at_disk_operation > 0 {
                    there.mortal.dies_after(at_disk_operation - 1);
                    return Ok(());
                }
                return self.end(host);
            }
            Fault::Pause { host, for_ms } => {
                let there = &mut self.core.hosts[usize::from(host)];
                there.frozen_until_ns = there.frozen_until_ns.max(now_ns + for_ms * 1_000_000);
                later(&mut self.core, for_ms, Relief::Thaw(host));
            }
            Fault::ClockJump { host, by_ms } => {
                self.core.hosts[usize::from(host)].clock_jumps(now_ns, by_ms);
            }
            Fault::ClockDrift { host, ppm } => {
                self.core.hosts[usize::from(host)].clock_drifts(now_ns, ppm);
            }
            Fault::SlowCpu { host, factor, for_ms } => {
                self.core.hosts[usize::from(host)].cpu_factor = factor;
                later(&mut self.core, for_ms, Relief::Cpu(host));
            }
            Fault::SlowDisk { host, factor, for_ms } => {
                self.core.hosts[usize::from(host)].disk_factor = factor;
                later(&mut self.core, for_ms, Relief::Disk(host));
            }
            Fault::DiskFull { host, after_bytes, for_ms } => {
                self.core.hosts[usize::from(host)].disk.fill_up_after(after_bytes);
                later(&mut self.core, for_ms, Relief::DiskSpace(host));
            }
            Fault::WriteFails { host, after_bytes } => {
                self.core.hosts[usize::from(host)].disk.fail_write_after(after_bytes);
            }
            Fault::SyncFails { host, after_syncs } => {
                self.core.hosts[usize::from(host)].disk.fail_sync_after(after_syncs);
            }
            Fault::Isolate { host, outgoing_only, for_ms } => {
                let (hosts, clients) = self.everyone();
                let me = Address::Host(host);
                let others = hosts.into_iter().chain(clients);
                let cut = Cut {
                    from: vec![me],
                    to: others.filter(|&other| other != me).collect(),
                    one_way: outgoing_only,
                };
                self.core.network.cut(number, cut);
                later(&mut self.core, for_ms, Relief::Cut(number));
            }
            Fault::Partition { hosts, one_way, for_ms } => {
                let (all, _) = self.everyone();
                let (from, to) = all
                    .into_iter()
                    .partition(|address| matches!(address, Address::Host(host) if hosts.contains(host)));
                self.core.network.cut(number, Cut { from, to, one_way });
                later(&mut self.core, for_ms, Relief::Cut(number));
            }
            Fault::CutLink { from, to, one_way, for_ms } => {
                let cut = Cut { from: vec![Address::Host(from)], to: vec![Address::Host(to)], one_way };
                self.core.network.cut(number, cut);
                later(&mut self.core, for_ms, Relief::Cut(number));
            }
            Fault::SlowLink { from, to, factor, for_ms } => {
                self.core.network.slow_down(Address::Host(from), Address::Host(to), factor);
                later(&mut self.core, for_ms, Relief::Link(from, to));
            }
            Fault::Weather { loss_permille, duplicate_permille, for_ms } => {
                self.core.network.weather = Weather { loss_permille, duplicate_permille };
                later(&mut self.core, for_ms, Relief::Weather);
            }
            Fault::Replace { host } => self.system.replace(host, &mut self.core),
            Fault::Disconnect { client } => return self.system.disconnect(client, &mut self.core),
        }
        Ok(())
    }

    pub(super) fn relieve(&mut self, relief: Relief) -> Result<(), Violation> {
        let core = &mut self.core;
        if let Some(lasting) = relief.lasting()
            && core.lasting.get(&lasting) > Some(&core.now_ns)
        {
            return Ok(());
        }
        match relief {
            Relief::Restart(host) => return self.start(host),
            Relief::Thaw(host) => {
                let there = &mut core.hosts[usize::from(host)];
                if there.frozen_until_ns <= core.now_ns {
                    there.frozen_until_ns = 0;
                    // What reached it meanwhile, in the order in which it came.
                    for event in std::mem::take(&mut core.frozen[usize::from(host)]) {
                        self.event(event)?;
                    }
                }
            }
            Relief::Cpu(host) => core.hosts[usize::from(host)].cpu_factor = 1,
            Relief::Disk(host) => core.hosts[usize::from(host)].disk_factor = 1,
            Relief::DiskSpace(host) => core.hosts[usize::from(host)].disk.make_space(),
            Relief::Cut(number) => {
                core.network.heal(number);
                core.release();
            }
            Relief::Link(from, to) => {
                core.network.slow_down(Address::Host(from), Address::Host(to), 1);
            }
            Relief::Weather => core.network.weather = Weather::default(),
            Relief::Heal => {
                core.note_fault(None, || "the world heals".to_owned());
                core.healed_ns = Some(core.now_ns);
                core.network.heal_all();
                core.release();
                for host in 0..core.hosts.len() as u16 {
                    let core = &mut self.core;
                    let there = &mut core.hosts[usize::from(host)];
                    there.disk.obey();
                    (there.cpu_factor, there.disk_factor) = (1, 1);
                    there.mortal.immortal();
                    there.death = None;
                    core.hosts[usize::from(host)].clock_drifts(core.now_ns, 0);
                    // Whoever is still down starts now.
                    core.queue.add(core.now_ns, Event::Relief(Relief::Restart(host)));
                    if self.nodes[usize::from(host)]
                        .as_ref()
                        .is_some_and(|node| self.system.needs_restart(node))
                    {
                        self.core.hosts[usize::from(host)].death =
                            Some(Death { power: false, flip_bit: false, lose_disk: false, down_ms: 1 });
                        self.end(host)?;
                    }
                }
            }
        }
        Ok(())
    }
}
