//! The kernel's word on the machine: memory, clocks, limits. Servers refuse huge pages by themselves.

use super::Finding;
use server::config::Config;
use server::server::open_files_wanted;
use std::path::PathBuf;

/// Where the kernel tells of a machine.
pub struct Machine {
    /// `/`, or what a test has in its place.
    root: PathBuf,
}

/// Beside what `maxmemory` counts, a process has code, stacks and what the allocator keeps: about a quarter.
const BESIDE: f64 = 1.25;
/// Clock sources that are read without entering the kernel.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];
/// Programs that keep a clock right.
const CLOCK_KEEPERS: [&str; 5] = ["chronyd", "ntpd", "openntpd", "systemd-timesyn", "ptp4l"];

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        Machine { root: PathBuf::from("/") }
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// All checks.
    pub fn check(&self, config: &Config) -> Vec<Finding> {
        let files = open_files_wanted(config);
        vec![
            self.open_files(files),
            self.memory(config.maxmemory),
            self.backlog(config.tcp_backlog),
            self.clock_source(),
            self.clock_sync(config.cluster.is_some()),
        ]
    }

    fn open_files(&self, wanted: u64) -> Finding {
        let limits = self.read("proc/self/limits").unwrap_or_default();
        let hard = limits.lines().find_map(|line| {
            let mut words = line.strip_prefix("Max open files")?.split_whitespace().skip(1);
            words.next().map(|word| word.parse::<u64>().unwrap_or(u64::MAX))
        });
        match hard {
            None => unknown("open-files", "the limit on open files"),
            Some(hard) if hard < wanted => Finding::warning(
                "open-files",
                format!(
                    "this shell allows {hard}, maxclients wants {wanted}; a systemd unit has its own limit"
                ),
                "raise the hard limit ('ulimit -Hn', LimitNOFILE= of systemd), or lower maxclients",
            ),
            Some(hard) => Finding::ok(
                "open-files",
                format!("this shell allows {hard}, {wanted} are wanted; a systemd unit has its own limit"),
            ),
        }
    }

    /// The memory that a process may take, in bytes: of the machine, or of its control group.
    fn memory_bytes(&self) -> Option<u64> {
        let info = self.read("proc/meminfo")?;
        let total = info.lines().find_map(|line| {
            let kilobytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
            kilobytes.trim().parse::<u64>().ok()
        })?;
        let limit = self.read("sys/fs/cgroup/memory.max").and_then(|limit| limit.trim().parse().ok());
        Some((total * 1024).min(limit.unwrap_or(u64::MAX)))
    }

    fn memory(&self, maxmemory: u64) -> Finding {
        let Some(bytes) = self.memory_bytes() else { return unknown("memory", "how much memory there is") };
        let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let fits = (bytes as f64 / BESIDE) as u64;
        match maxmemory {
            0 => Finding::warning(
                "memory",
                format!("{} for this process, and maxmemory is 0: no limit", gb(bytes)),
                format!(
                    "the kernel ends a process that takes too much: set maxmemory to {} at most",
                    gb(fits)
                ),
            ),
            maxmemory if maxmemory > fits => Finding::failed(
                "memory",
                format!("maxmemory is {}, and there are {} for this process", gb(maxmemory), gb(bytes)),
                format!(
                    "a process takes a quarter more than maxmemory counts: set it to {} at most",
                    gb(fits)
                ),
            ),
            maxmemory => Finding::ok("memory", format!("maxmemory is {} of {}", gb(maxmemory), gb(bytes))),
        }
    }

    fn backlog(&self, wanted: u64) -> Finding {
        let most = self.read("proc/sys/net/core/somaxconn");
        let most = most.and_then(|text| text.trim().parse::<u64>().ok());
        match most {
            None => unknown("backlog", "how many connections may wait"),
            Some(most) if most < wanted => Finding::warning(
                "backlog",
                format!("{most} connections may wait to be accepted, and tcp-backlog wants {wanted}"),
                format!("sysctl -w net.core.somaxconn={wanted}, also at each boot"),
            ),
            Some(most) => Finding::ok("backlog", format!("{most} connections may wait to be accepted")),
        }
    }

    fn clock_source(&self) -> Finding {
        let source = self.read("sys/devices/system/clocksource/clocksource0/current_clocksource");
        match source.as_deref().map(str::trim) {
            None => unknown("clock-source", "the source of the clock"),
            Some(source) if FAST_CLOCKS.contains(&source) => Finding::ok("clock-source", source),
            Some(source) => Finding::warning(
                "clock-source",
                format!("{source}, which takes long to be read"),
                "choose tsc or the hypervisor's own (kernel parameter clocksource=): clocks are read at each \
                 turn",
            ),
        }
    }

    fn clock_sync(&self, in_cluster: bool) -> Finding {
        if self.root.join("run/systemd/timesync/synchronized").exists() {
            return Finding::ok("clock-sync", "systemd-timesyncd keeps the clock right");
        }
        let processes = std::fs::read_dir(self.root.join("proc")).into_iter().flatten().flatten();
        let names = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok());
        let mut keepers = names.filter(|name| CLOCK_KEEPERS.contains(&name.trim()));
        let why = match in_cluster {
            true => {
                "nodes correct each other within clock_ahead_ms_max, and times to live follow the order's \
                     time"
            }
            false => "times to live go by this clock",
        };
        match keepers.next() {
            Some(name) => Finding::ok("clock-sync", format!("{} runs", name.trim())),
            None => Finding::warning(
                "clock-sync",
                "no program was found that keeps the clock right",
                format!("run chrony or systemd-timesyncd, unless the hypervisor does it: {why}"),
            ),
        }
    }
}

fn unknown(check: &'static str, what: &str) -> Finding {
    Finding::warning(check, format!("the kernel does not tell {what}"), "look it up by hand")
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;
    use std::path::Path;

    /// A machine of these files.
    fn machine(files: &[(&str, &str)]) -> (Machine, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("made");
            std::fs::write(path, content).expect("written");
        }
        (Machine { root: dir.path().to_owned() }, dir)
    }

    fn grades(machine: &Machine, maxmemory: u64) -> Vec<(&'static str, Grade)> {
        let mut config = Config::default();
        config.maxmemory = maxmemory;
        machine.check(&config).iter().map(|finding| (finding.check, finding.grade)).collect()
    }

    const GOOD: [(&str, &str); 5] = [
        (
            "proc/self/limits",
            "Limit  Soft Hard Units\nMax open files            1024      524288     files\n",
        ),
        ("proc/meminfo", "MemTotal:       8000000 kB\nMemFree: 1 kB\n"),
        ("proc/sys/net/core/somaxconn", "4096\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ("proc/17/comm", "chronyd\n"),
    ];

    #[test]
    fn a_machine_that_is_good_has_no_warnings_and_each_flaw_has_its_own() {
        let (good, _dir) = machine(&GOOD);
        assert!(
            grades(&good, 4 << 30).iter().all(|(_, grade)| *grade == Grade::Ok),
            "{:?}",
            grades(&good, 1)
        );
        let many = "Max open files 1024 unlimited files\n";
        for (path, content, maxmemory, check, grade) in [
            ("none", "", 0, "memory", Grade::Warning),
            ("none", "", 8_000_000_000, "memory", Grade::Failed),
            ("sys/fs/cgroup/memory.max", "1000000000\n", 1 << 30, "memory", Grade::Failed),
            ("sys/fs/cgroup/memory.max", "max\n", 1 << 30, "memory", Grade::Ok),
            ("proc/self/limits", "Max open files 1024 4096 files\n", 1, "open-files", Grade::Warning),
            ("proc/self/limits", many, 1, "open-files", Grade::Ok),
            ("proc/self/limits", "", 1, "open-files", Grade::Warning),
            (GOOD[2].0, "128\n", 1, "backlog", Grade::Warning),
            (GOOD[3].0, "hpet\n", 1, "clock-source", Grade::Warning),
            (GOOD[4].0, "bash\n", 1, "clock-sync", Grade::Warning),
        ] {
            let files: Vec<(&str, &str)> =
                GOOD.into_iter().filter(|(known, _)| *known != path).chain([(path, content)]).collect();
            let (machine, _dir) = machine(&files);
            let found = grades(&machine, maxmemory);
            let of_check = found.iter().find(|(found, _)| *found == check);
            assert_eq!(of_check, Some(&(check, grade)), "{path}: {content}");
            let others = found.iter().filter(|(found, _)| *found != check);
            assert!(others.into_iter().all(|(_, grade)| *grade == Grade::Ok), "{path}: {found:?}");
        }
    }
}
