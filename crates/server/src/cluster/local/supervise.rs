//! Tells what happens to processes until they are to stop.

use super::{Ended, LocalError, Processes};
use crate::cluster::config::host_and_port;
use std::io::{self, Write};

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process of ours has ended, maybe.
    ChildEnded,
    /// All are to stop.
    Stop,
}

/// Says how to use the processes, and then what happens to them, on `out`. Ends when an event says so (or
/// there are no more), with all stopped in good order, or when the last process has ended.
pub fn supervise(
    processes: &mut Processes,
    events: impl Iterator<Item = Event>,
    out: &mut dyn Write,
) -> Result<(), LocalError> {
    instruct(processes, out)?;
    let mut lost = Vec::new();
    // What happened before anybody listened to events is looked for first.
    for event in std::iter::once(Event::ChildEnded).chain(events) {
        for ended in processes.newly_ended()? {
            mourn(&ended, out)?;
            if !ended.is_for_good() {
                lost.push(ended.launch.name);
            }
        }
        if processes.running().next().is_none() {
            return Err(LocalError::NoneLeft);
        }
        if event == Event::Stop {
            break;
        }
    }
    writeln!(out, "\nStopping: every node finishes what is in flight.")?;
    let killed = processes.stop();
    for log in &killed {
        writeln!(out, "A node did not stop in time and was killed: see {}.", log.display())?;
    }
    if !lost.is_empty() {
        let lost = lost.join(", ");
        writeln!(out, "{lost} had ended before. If you started it again, stop it as well.")?;
    }
    writeln!(out, "Stopped. The same command starts the cluster again, with its data.")?;
    Ok(())
}

/// Says who is there and what to try.
fn instruct(processes: &Processes, out: &mut dyn Write) -> io::Result<()> {
    let width = |text: fn(&super::Launch) -> &str| {
        let widths = processes.running().map(|(launch, _)| text(launch).len());
        widths.max().unwrap_or(0)
    };
    let name = width(|launch| &launch.name);
    let zone = width(|launch| &launch.zone);
    let address = width(|launch| &launch.client_address);
    for (launch, process) in processes.running() {
        let waits = match launch.may_wait {
            true => "  (it may wait to join: its output says for what)",
            false => "",
        };
        writeln!(
            out,
            "  {:name$}  {:zone$}  clients at {:address$}  process {process}  output in {}{waits}",
            launch.name,
            launch.zone,
            launch.client_address,
            launch.log.display()
        )?;
    }
    let mut running = processes.running().filter(|(launch, _)| !launch.may_wait);
    let Some((first, _)) = running.next() else {
        return Ok(());
    };
    let (last, process) = running.last().unwrap_or((first, 0));
    let port = host_and_port(&first.client_address).map_or(0, |(_, port)| port);
    // The files are somewhere in the settings; the reader chose them.
    let tls = match first.tls {
        Some(_) => " --tls --cacert FILE --cert FILE --key FILE",
        None => "",
    };
    let mut ideas = vec![(format!("redis-cli -p {port}{tls}"), "any node takes any command".to_owned())];
    let gone = if first.is_certified {
        let command = format!("ordo admin status --address {}{tls}", first.client_address);
        ideas.push((command, "who is there, and how far".to_owned()));
        "what needs it waits for it"
    } else {
        let told = "the same, for clients that know clusters".to_owned();
        ideas.push((format!("redis-cli -c -p {port}{tls}"), told));
        let command = format!("ordo admin status --address {}{tls}", first.client_address);
        ideas.push((command, "who is there, and who leads".to_owned()));
        "the others go on"
    };
    if process != 0 {
        ideas.push((format!("kill -9 {process}"), format!("{} is gone, and {gone}", last.name)));
    }
    let width = ideas.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    writeln!(out, "\nTo try:")?;
    for (command, effect) in ideas {
        writeln!(out, "  {command:width$}  {effect}")?;
    }
    writeln!(out, "Ctrl-C stops all.")?;
    out.flush()
}

/// Says who has ended, and how to start it again, if that is of use.
fn mourn(ended: &Ended, out: &mut dyn Write) -> io::Result<()> {
    let Ended { launch, process, status, said } = ended;
    writeln!(out, "\n{} (process {process}) has ended: {status}.", launch.name)?;
    // Who was killed has nothing to tell; who ended by itself has.
    if status.code().is_some() {
        writeln!(out, "The last that it said:\n{said}")?;
    }
    if ended.is_for_good() {
        writeln!(out, "It is not to be started again as it is. The others go on without it.")?;
    } else {
        writeln!(out, "To start it again, in another terminal:\n  {}", launch.command_line())?;
    }
    out.flush()
}
