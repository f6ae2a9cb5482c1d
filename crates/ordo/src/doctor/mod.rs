//! `ordo doctor`: whether a machine and a configuration can be trusted with data, before they are.
//!
//! It takes the words of `ordo serve`, and tells one line for each check: what was found, and what to do if
//! that is not good. It changes nothing: the file with which it tries the disk is removed again.
//!
//! A check is a function of what was found to a [`Finding`]: the machine is asked in one place
//! ([`machine::Machine`]), so that tests can show a check machines that they do not have.

mod disk;
mod machine;
mod places;

use crate::command::print_all;
use anyhow::Result;
use machine::Machine;
use serde::Serialize;
use server::config::{Config, Invocation};
use std::path::Path;
use std::process::ExitCode;

/// What `ordo doctor --help` says.
const HELP: &str = "\
Checks a machine and a configuration before they are trusted

Usage: ordo doctor [--json] [<words of ordo serve>...]

One line for each check: 'ok', 'warning' (it works, but not as well as it should) or 'failed' (a
server would not start, or not be safe), with what to do. Give the same words as to 'ordo serve',
for example a redis.conf, or --cluster and --node: a server that runs with them should be stopped.

Options:
      --json  JSON instead of lines (docs/operating.md)
  -h, --help  This text

Exits with 0 if all is well, 1 with warnings, 2 if a check has failed.
";

/// What came of a check. The later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    Ok,
    /// It works, but not as well as it should.
    Warning,
    /// A server would not start, or not be safe.
    Failed,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to do; empty if nothing.
    pub advice: String,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, grade: Grade::Ok, found: found.into(), advice: String::new() }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, grade: Grade::Warning, found: found.into(), advice: advice.into() }
    }

    pub fn failed(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, grade: Grade::Failed, found: found.into(), advice: advice.into() }
    }

    /// As a line.
    fn line(&self) -> String {
        let grade = match self.grade {
            Grade::Ok => "ok",
            Grade::Warning => "warning",
            Grade::Failed => "failed",
        };
        let line = format!("{grade:<8} {:<14} {}", self.check, self.found);
        match self.advice.is_empty() {
            true => line,
            false => format!("{line}: {}", self.advice),
        }
    }
}

/// The findings, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    grade: Grade,
    findings: &'a [Finding],
}

/// Runs `ordo doctor`. The exit code is that of the worst finding.
pub fn run(mut words: Vec<String>) -> Result<ExitCode> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print_all(HELP.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = words.len();
    words.retain(|word| word != "--json");
    let findings = examine(words.clone());
    let grade = findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Ok);
    let text = match words.len() < before {
        true => serde_json::to_string_pretty(&Report { grade, findings: &findings })? + "\n",
        false => findings.iter().map(|finding| finding.line() + "\n").collect(),
    };
    print_all(text.as_bytes())?;
    Ok(ExitCode::from(grade as u8))
}

/// All checks, in the order in which an operator mends what they find.
fn examine(words: Vec<String>) -> Vec<Finding> {
    let machine = Machine::this();
    let config = match Config::from_args(words) {
        Ok(Invocation::Serve(config)) => Ok(*config),
        Ok(Invocation::Help | Invocation::Version) => Ok(Config::default()),
        Err(error) => Err(error.to_string()),
    };
    let mut findings = match &config {
        Ok(config) => configuration(config),
        Err(error) => {
            let advice = "correct that, and see 'ordo serve --help': what follows is about a server without \
                          settings";
            vec![Finding::failed("configuration", error, advice)]
        }
    };
    let config = config.unwrap_or_default();
    findings.extend(places::check(&config));
    findings.extend(disk::check(Path::new(&config.dir), config.appendfsync));
    findings.extend(machine.check(&config));
    findings
}

/// What the settings and the cluster's description say.
fn configuration(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let notes = config.notes.iter();
    let warnings = config.cluster.iter().flat_map(|(cluster, _)| &cluster.warnings);
    let exposed = config.exposed_secrets();
    for text in notes.chain(warnings).chain(&exposed) {
        findings.push(Finding::warning("configuration", text, ""));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("configuration", "the settings are understood"));
    }
    findings.push(match &config.cluster {
        None => Finding::ok("cluster", "none: this is a server by itself"),
        Some((cluster, node)) => Finding::ok(
            "cluster",
            format!(
                "{} describes {} nodes and {} partitions of '{}', and this node is '{node}'",
                config.cluster_file,
                cluster.nodes.len(),
                cluster.partitions,
                cluster.name
            ),
        ),
    });
    findings
}
