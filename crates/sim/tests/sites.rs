//! The model of PCSI's sites: what it promises whatever it is asked.

use certify::pcsi::RemoteAccess;
use ordo_sim::draw::seeds;
use ordo_sim::scale::sites::{Load, Price, SitesOptions, SitesReport, run};
use ordo_sim::scale::{Costs, Times};
use txn::mutant::{Mutant, with};

/// The paper's workload C with few items, so that transactions conflict.
const LOAD: Load = Load {
    read_partitions: 2,
    write_partitions: 3,
    remote_partitions: 2,
    remote_percent: 20,
    read_items: 4,
    write_items: 2,
    items: 400,
    item_bytes: 100,
};

fn options(remote_access: RemoteAccess, seed: u64) -> SitesOptions {
    SitesOptions {
        sites: 8,
        remote_access,
        is_causal: true,
        load: LOAD,
        clients: 3,
        period_ns: 100_000_000,
        between_regions_ns: 20_000_000,
        times: Times { warm_up_ns: 300_000_000, measured_ns: 500_000_000, ..Times::default() },
        costs: Costs::default(),
        price: Price::Assumed(20_000),
        seed,
        judged: true,
    }
}

fn judged(options: &SitesOptions) -> SitesReport {
    run(options).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn replicas_agree_in_the_end_and_the_same_seed_gives_the_same_run() {
    for seed in seeds(2) {
        for remote_access in [RemoteAccess::Grants, RemoteAccess::Ghosts] {
            let options = options(remote_access, seed);
            let report = judged(&options);
            assert_eq!(report, judged(&options), "seed {seed}, {remote_access:?}");
            assert!(report.committed > 100 && report.committed_remote > 0, "seed {seed}: {report:?}");
            assert!(report.aborted.contains_key("newer version"), "seed {seed}: {report:?}");
            let parts = [report.response_mean_ns, report.votes_mean_ns, report.applied];
            assert!(parts.iter().all(|&part| part > 0) && report.busy < 1.0, "seed {seed}: {report:?}");
            assert!(report.votes_mean_ns >= 2 * options.between_regions_ns / 3, "seed {seed}: {report:?}");
        }
    }
}

#[test]
fn vectors_without_causality_are_stamps_only() {
    for seed in seeds(1) {
        let bytes = |remote_access, is_causal| {
            let report = judged(&SitesOptions { is_causal, ..options(remote_access, seed) });
            (report.vector_bytes, report.update_bytes)
        };
        let (ghosts, _) = bytes(RemoteAccess::Ghosts, true);
        let (grants, of_all) = bytes(RemoteAccess::Grants, true);
        let (none, of_none) = bytes(RemoteAccess::Grants, false);
        assert!(none < 60.0 && none < grants && none < ghosts, "seed {seed}: {none} {grants} {ghosts}");
        assert!((of_all - grants - of_none + none).abs() < 100.0, "seed {seed}: the writes are the same");
    }
}

#[test]
fn without_remote_writes_sites_need_no_remote_access() {
    let load = Load { remote_percent: 0, ..LOAD };
    let of = |remote_access| judged(&SitesOptions { load, ..options(remote_access, 7) });
    let report = of(RemoteAccess::Refused);
    assert!(report.committed > 100 && report.committed_remote + report.aborted_remote == 0, "{report:?}");
    let wrong = run(&options(RemoteAccess::Refused, 7)).unwrap_err();
    assert!(wrong.contains("remote access"), "{wrong}");
}

#[test]
fn a_site_that_never_fills_void_numbers_is_found() {
    let found = with(Mutant::KeepVoid, || run(&options(RemoteAccess::Grants, 1)));
    let wrong = found.expect_err("void numbers are kept, and the run is right");
    assert!(wrong.contains("waits for ever"), "{wrong}");
}
