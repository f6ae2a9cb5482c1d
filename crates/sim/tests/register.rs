//! The replicated register: its promises, whatever goes wrong, and each deliberate defect found.

use ordo_sim::draw::{one_seed, seeds, tracing};
use ordo_sim::options::{Options, SystemKind, Wishes};
use ordo_sim::run::{Outcome, run};
use ordo_sim::trace::Trace;

fn options(seed: u64) -> Options {
    let wishes = Wishes {
        system: Some(SystemKind::Register),
        ..Wishes::default()
    };
    Options::draw(seed, &wishes)
}

fn report(options: &Options, outcome: &Outcome) {
    if let Some(trace) = &outcome.trace {
        println!("{}", trace.text());
    }
    if let Some(violation) = &outcome.violation {
        println!("{options}\n{violation}");
    }
}

#[test]
fn replicas_keep_their_promises() {
    let mut failures = Vec::new();
    let (mut ends, mut compactions, mut recoveries) = (0, 0, 0);
    for seed in seeds(40) {
        let options = options(seed);
        let outcome = run(&options, tracing().then(|| Trace::new(100_000)));
        println!("{seed}: {:?}", outcome.report);
        report(&options, &outcome);
        let tally = outcome.report.tally;
        ends += tally.ends;
        compactions += tally.checkpoints;
        recoveries += tally.recovered_from_checkpoint;
        let asked = options.operations * u64::from(options.clients);
        let answered = tally.committed + tally.snapshot_reads;
        if outcome.violation.is_some() || answered != asked {
            failures.push(seed);
        }
    }
    assert!(failures.is_empty(), "seeds {failures:?}");
    assert!(
        one_seed() || (ends > 10 && compactions > 10 && recoveries > 3),
        "too little happened: {ends} ends, {compactions} compactions, {recoveries} recoveries"
    );
}
