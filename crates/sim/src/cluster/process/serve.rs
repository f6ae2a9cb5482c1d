//! What a process does for its clients: commands become requests, and what comes of them replies.

use super::*;

impl Turn<'_> {
    /// Finds or opens the connection of a command. False if the connection is gone.
    pub(super) fn open(&mut self, client: u16, number: u32, command: u64) -> bool {
        let known = self.process.connections.get(&client);
        let known = known.map_or(0, |connection| connection.number);
        if number == known {
            return true;
        }
        let boot = self.process.node.boot();
        if number < known || command != 1 || !self.process.serves() {
            let frame = Frame::Closed { connection: number };
            self.core.send(self.me(), Address::Client(client), frame);
            return false;
        }
        self.process.sessions += 1;
        let session = session::compose(boot.0, 0, self.process.sessions);
        let connection = Connection {
            number,
            session,
            sequence: 0,
            unanswered: VecDeque::new(),
            requests: BTreeMap::new(),
            home: PartitionId(0),
            reading: None,
            flights: Flights::default(),
            map: self.process.node.map().clone(),
            holds: false,
            behind: VecDeque::new(),
        };
        if let Some(old) = self.process.connections.insert(client, connection) {
            self.process.by_session.remove(&old.session);
        }
        self.process.by_session.insert(session, client);
        true
    }

    /// Takes in a command. Returns what it costs at once.
    pub(super) fn command(
        &mut self,
        client: u16,
        number: u64,
        partition: PartitionId,
        draft: Arc<Draft>,
        requests: &mut Vec<Arc<Request>>,
    ) -> Result<u64, Violation> {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return Ok(0);
        };
        if !connection.takes_commands() {
            connection.behind.push_back((number, partition, draft));
            return Ok(0);
        }
        let unfinished = !connection.unanswered.is_empty();
        connection.unanswered.push_back(Unanswered { number, answer: None });
        if connection.requests.is_empty() {
            connection.home = partition;
            connection.map = self.process.node.map().clone();
        }
        let is_across = self.system.plan.across;
        let mut route = match is_across {
            true => draft.route(connection.map.slots()),
            false => PartitionRoute::single(partition),
        };
        route.home = connection.home;
        connection.sequence += 1;
        let request = Arc::new(Request {
            id: RequestId { session: connection.session, sequence: connection.sequence, attempt: 0 },
            slots_version: connection.map.slots_version,
            procedure: self.system.work.on(draft.procedure.clone()),
            args: draft.args.clone(),
            footprint: draft.footprint.clone(),
            route,
            elsewhere: false,
        });
        let is_everywhere = request.route.partitions.len() == usize::from(request.route.of());
        // What follows must not overtake it, should it come again.
        connection.holds |= draft.strays && !is_everywhere;
        let flight = Flight::new(request.clone(), Reached(draft));
        let asker = node::Asker { unfinished, readonly: false };
        // Only the order has a place that is the same at several partitions.
        let is_shared = request.route.partitions.len() > 1;
        if is_shared || node::route(&request.footprint, asker) == Route::Order {
            connection.requests.insert(request.id.sequence, number);
            if is_across {
                connection.flights.add(flight);
            }
            requests.push(request);
            return Ok(self.system.plan.costs.request_ns);
        }
        let (id, partition) = (request.id, request.route.partitions[0]);
        let is_aside = node::route(&request.footprint, asker) == Route::Aside;
        connection.reading = Some((number, flight));
        if self.system.alone.is_some() {
            // Its newest snapshot has everything that was acknowledged.
            let read_ns = self.system.plan.costs.read_ns;
            if is_aside {
                let after_ns =
                    if self.system.plan.jitter { self.core.draw.below(3_000_000) } else { read_ns };
                self.core.set_timer(self.me(), after_ns, Timer::Read { client, id });
                return Ok(0);
            }
            self.process.readable.push((id, partition, Position::NONE));
            self.run_reads()?;
            return Ok(read_ns);
        }
        let now_ms = self.now_ms();
        let process = &mut *self.process;
        process.node.read([(id, partition)], now_ms, &mut process.effects);
        self.perform()?;
        Ok(self.system.plan.costs.read_ns)
    }

    /// Runs the strict reads whose time has come.
    pub(super) fn run_reads(&mut self) -> Result<(), Violation> {
        let waiting = std::mem::take(&mut self.process.readable);
        let mut requests = Vec::new();
        for (id, partition, position) in waiting {
            let reached = self.process.lanes.get(&partition).map(|lane| lane.engine.view().final_position());
            if reached.is_some_and(|reached| reached < position) {
                self.process.readable.push((id, partition, position));
                continue;
            }
            let Some(&client) = self.process.by_session.get(&id.session) else {
                continue;
            };
            let Some(connection) = self.process.connections.get_mut(&client) else {
                continue;
            };
            let Some((number, flight)) = connection.reading.take_if(|(_, flight)| flight.request.id == id)
            else {
                continue;
            };
            let read = self.read(&flight.request)?;
            let Some(connection) = self.process.connections.get_mut(&client) else {
                continue;
            };
            let is_across = self.system.plan.across;
            match read {
                Some((Err(Stop::Undeclared(missing)), _)) if is_across => {
                    connection.requests.insert(id.sequence, number);
                    connection.flights.add_again(flight, missing);
                    connection.holds = true;
                    self.submit_again(client);
                }
                Some((outcome, position)) => {
                    let place = Place::Snapshot(position);
                    self.answer(client, number, outcome, (partition, place));
                }
                None => {
                    connection.requests.insert(id.sequence, number);
                    requests.push(flight.request.clone());
                    if is_across {
                        connection.flights.add(flight);
                    }
                }
            }
            self.go_on(client, &mut requests)?;
        }
        self.submit(requests)
    }

    /// A long read of a node that stands alone runs, if its connection still waits for it.
    pub(super) fn read_aside(&mut self, client: u16, id: RequestId) -> Result<(), Violation> {
        let connection = self.process.connections.get(&client);
        let reading = connection.and_then(|connection| connection.reading.as_ref());
        if let Some((_, flight)) = reading.filter(|(_, flight)| flight.request.id == id) {
            let partition = flight.request.route.partitions[0];
            self.process.readable.push((id, partition, Position::NONE));
            self.run_reads()?;
        }
        Ok(())
    }

    /// Takes in the commands of a connection that have waited.
    pub(super) fn go_on(&mut self, client: u16, requests: &mut Vec<Arc<Request>>) -> Result<(), Violation> {
        while let Some(connection) = self.process.connections.get_mut(&client)
            && connection.takes_commands()
            && let Some((number, partition, draft)) = connection.behind.pop_front()
        {
            self.command(client, number, partition, draft, requests)?;
        }
        Ok(())
    }

    /// Submits again what was not executed, once nothing else of its connection is on its way.
    pub(super) fn submit_again(&mut self, client: u16) {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return;
        };
        let again = connection.flights.take_again();
        if again.is_empty() {
            return;
        }
        connection.map = self.process.node.map().clone();
        let PartitionMap { slots_version, .. } = *connection.map;
        for flight in node::flights::again(again, slots_version, connection.map.slots()) {
            connection.home = flight.request.route.home;
            self.process.backlog.push(flight.request.clone());
            connection.flights.add(flight);
            self.system.tally.widened += 1;
        }
    }

    /// Reads at the newest final snapshot. `None` if the order must decide.
    pub(super) fn read(&mut self, request: &Arc<Request>) -> Result<Option<(Outcome, Position)>, Violation> {
        let partition = request.route.partitions[0];
        let lead_ms = self.process.node.epoch_lead_ms();
        let now_ms = self.now_ms().saturating_add_signed(lead_ms);
        let Some(lane) = self.process.lanes.get_mut(&partition) else {
            return Ok(None);
        };
        let view = lane.engine.view();
        let position = view.final_position();
        let snapshot_ms = view.final_time_ms();
        let now_ms = now_ms.max(snapshot_ms);
        let outcome = match self.process.node.map().slots_wanted(request) {
            Ok(wanted) => lane.reader.run_where(request, wanted, now_ms),
            Err(stop) => ReadOutcome::Done(Err(stop)),
        };
        // A read costs what the table says.
        self.system.work.take_ns();
        match outcome {
            ReadOutcome::Done(outcome) => {
                let comes_again = request.route.of() > 1 && matches!(outcome, Err(Stop::Undeclared(_)));
                if self.system.plan.is_judged_at(self.host) && !comes_again {
                    self.system.partition(partition).judge_read(SnapshotRead {
                        request: request.clone(),
                        position,
                        snapshot_ms,
                        now_ms,
                        outcome: outcome.clone(),
                    })?;
                }
                Ok(Some((outcome, position)))
            }
            ReadOutcome::MustOrder => Ok(None),
            ReadOutcome::Interrupted => {
                Err(Violation::new("serial", format!("{request:?} was interrupted by nobody")))
            }
        }
    }

    /// Submits requests.
    pub(super) fn submit(&mut self, mut requests: Vec<Arc<Request>>) -> Result<(), Violation> {
        if requests.is_empty() {
            return Ok(());
        }
        let now_ms = self.now_ms();
        let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        let process = &mut *self.process;
        match process.node.submit(&mut requests, now_ms, &mut process.effects) {
            Ok(()) => {
                self.process.taken.extend(ids);
                self.perform()
            }
            Err(Refused::Busy) => {
                self.process.backlog.extend(requests);
                Ok(())
            }
            Err(refused) => {
                for request in requests {
                    let nowhere = (PartitionId(0), Place::Nowhere);
                    self.arrived(request.id, Ok(refused.reply()), nowhere)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn resubmit(&mut self) -> Result<(), Violation> {
        let requests = std::mem::take(&mut self.process.backlog);
        self.submit(requests)
    }

    /// A transaction has final-committed.
    pub(super) fn committed(
        &mut self,
        partition: PartitionId,
        committed: Committed,
    ) -> Result<(), Violation> {
        if self.system.plan.is_judged_at(self.host)
            && let Some(lane) = self.process.lanes.get_mut(&partition)
        {
            let watch = &mut self.system.partitions[usize::from(partition.0)];
            watch.judge(&mut lane.watch, committed.clone())?;
            if let Some(alone) = &self.system.alone {
                alone.committed(watch.epoch_of(committed.position))?;
            }
        }
        let id = committed.request.id;
        // What runs at several partitions is answered by the first.
        if committed.request.route.partitions.first() != Some(&partition) {
            return Ok(());
        }
        let (boot, _) = session::boot_and_port(id.session);
        if BootId(boot) != self.process.node.boot() && self.process.node.is_spread() {
            let answered =
                Answered { id, partition, position: committed.position, outcome: committed.outcome };
            let now_ms = self.now_ms();
            let process = &mut *self.process;
            process.node.executed([answered], now_ms, &mut process.effects);
            return self.perform();
        }
        self.process.taken.remove(&id);
        let place = Place::At(committed.position);
        self.arrived(id, committed.outcome, (partition, place))
    }

    /// A request or a read is answered without the order.
    pub(super) fn refuse(&mut self, id: RequestId, outcome: Outcome) {
        let Some(&client) = self.process.by_session.get(&id.session) else {
            return;
        };
        // Its outcome is unknown: so is that of everything else on the connection.
        if let Some(connection) = self.process.connections.remove(&client) {
            self.process.by_session.remove(&id.session);
            self.core.note(Address::Host(self.host), || format!("{outcome:?}"));
            let frame = Frame::Closed { connection: connection.number };
            self.core.send(self.me(), Address::Client(client), frame);
        }
    }

    pub(super) fn arrived(
        &mut self,
        id: RequestId,
        outcome: Outcome,
        place: (PartitionId, Place),
    ) -> Result<(), Violation> {
        let Some(&client) = self.process.by_session.get(&id.session) else {
            return Ok(());
        };
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return Ok(());
        };
        if connection.flights.ended(id, &outcome) {
            connection.holds = true;
            self.submit_again(client);
            return Ok(());
        }
        let Some(number) = connection.requests.remove(&id.sequence) else {
            return Ok(());
        };
        self.answer(client, number, outcome, place);
        self.submit_again(client);
        let mut requests = Vec::new();
        self.go_on(client, &mut requests)?;
        self.process.backlog.extend(requests);
        Ok(())
    }

    /// Answers a command as soon as those before it are answered.
    pub(super) fn answer(&mut self, client: u16, number: u64, outcome: Outcome, place: (PartitionId, Place)) {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return;
        };
        let mut unanswered = connection.unanswered.iter_mut();
        if let Some(unanswered) = unanswered.find(|unanswered| unanswered.number == number) {
            unanswered.answer = Some((outcome, place));
        }
        while let Some(answered) =
            connection.unanswered.pop_front_if(|unanswered| unanswered.answer.is_some())
        {
            let Some((outcome, (partition, place))) = answered.answer else {
                break;
            };
            let process = self.core.host(self.host).incarnation();
            let frame = Frame::Reply {
                connection: connection.number,
                number: answered.number,
                outcome,
                partition,
                place,
                process,
            };
            self.core.send(Address::Host(self.host), Address::Client(client), frame);
        }
    }
}
