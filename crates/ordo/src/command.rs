//! The commands of the binary, and what is made of their definition: shell completions and manual pages.

use crate::{admin, backup, bench, cluster, export, import, replay, reproduce, simulate};
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, Args, Command, Subcommand};
use clap_complete::Shell;
use server::config::{HIDDEN, Kind, SETTINGS};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Takes every word after the subcommand as it is: the settings' own table says what they mean.
fn words() -> Arg {
    Arg::new("words").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true).action(ArgAction::Append)
}

/// The whole definition.
pub fn command() -> Command {
    Command::new("ordo")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A transactional in-memory store that speaks the Redis protocol")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("serve")
                .about("Serves Redis clients (--help lists all settings)")
                .disable_help_flag(true)
                .arg(words()),
        )
        // What is said of them here comes after their arguments, which bring a text of their own.
        .subcommand(
            cluster::Cluster::augment_subcommands(
                Command::new("cluster").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Runs a cluster on this machine, to try out"),
        )
        .subcommand(admin::command())
        .subcommand(
            backup::Backup::augment_args(Command::new("backup").arg_required_else_help(true))
                .about("Copies a running server or cluster, and then its order, to a directory or to S3")
                .long_about(None),
        )
        .subcommand(
            backup::Restore::augment_args(Command::new("restore").arg_required_else_help(true))
                .about("Makes a new database of a backup, as it was at any moment")
                .long_about(None),
        )
        .subcommand(
            Command::new("doctor")
                .about("Checks a machine and a configuration before they are trusted")
                .disable_help_flag(true)
                .arg(words()),
        )
        .subcommand(
            export::Export::augment_args(Command::new("export"))
                .about("Tells what transactions change, in their order, as lines of JSON")
                .long_about(None),
        )
        .subcommand(
            replay::Replay::augment_args(Command::new("replay").arg_required_else_help(true))
                .about("Executes a transaction of the order again, and shows what it read, wrote and replied")
                .long_about(None),
        )
        .subcommand(
            import::Import::augment_args(Command::new("import").arg_required_else_help(true))
                .about(
                    "Imports a snapshot of a Redis or a Valkey, or follows a running one until the cut-over",
                )
                .long_about(None),
        )
        .subcommand(
            bench::Bench::augment_subcommands(
                Command::new("bench").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Measures engines, and servers that speak the Redis protocol"),
        )
        .subcommand(
            reproduce::Reproduce::augment_subcommands(
                Command::new("reproduce").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Makes the figures of papers again, and a page of them"),
        )
        .subcommand(
            simulate::Sim::augment_args(Command::new("sim").arg_required_else_help(true))
                .about("Runs whole nodes, clients, a network and faults in virtual time, and judges them")
                .long_about(None),
        )
        .subcommand(
            Completions::augment_args(Command::new("completions").arg_required_else_help(true))
                .about("Prints a script that completes commands in a shell")
                .long_about(None),
        )
        .subcommand(
            Man::augment_args(Command::new("man").arg_required_else_help(true))
                .about("Writes a manual page for each command")
                .long_about(None),
        )
}

/// The definition with the settings of `ordo serve`, which takes its words by a table of its own.
fn described() -> Command {
    command().mut_subcommand("serve", |_| {
        let file = "A file of settings: TOML, or Redis's own form";
        let serve = Command::new("serve").about("Serves Redis clients");
        let serve = serve.arg(Arg::new("file").value_name("FILE").help(file));
        let settings = SETTINGS.iter().filter(|setting| !HIDDEN.contains(&setting.name));
        serve.args(settings.map(|setting| {
            let default = if setting.default.is_empty() { "''" } else { setting.default };
            let help =
                format!("{} Takes {}; the default is {default}.", setting.help, setting.kind.expectation());
            let arg = Arg::new(setting.name).long(setting.name).value_name("VALUE").help(help);
            match setting.kind {
                Kind::Choice(words) => arg.value_parser(words.to_vec()),
                Kind::Flag => arg.value_parser(["yes", "no"]),
                _ => arg,
            }
        }))
    })
}

/// Prints to the standard output. Whoever reads that may have had enough.
pub fn print_all(bytes: &[u8]) -> Result<()> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// `ordo completions`.
#[derive(Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn print(&self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut described(), "ordo", &mut script);
        print_all(&script)
    }
}

/// `ordo man`.
#[derive(Args)]
pub struct Man {
    /// The directory that gets the pages; it is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl Man {
    /// Writes the pages.
    pub fn write(&self) -> Result<()> {
        let shown = self.to.display();
        std::fs::create_dir_all(&self.to).with_context(|| format!("{shown} cannot be made"))?;
        let mut root = described();
        // Subcommands learn what they are called in full.
        root.build();
        let count =
            write_pages(&root, &self.to).with_context(|| format!("pages cannot be written to {shown}"))?;
        println!("{shown}: {count} pages, of which ordo.1 is the first");
        Ok(())
    }
}

/// Writes the page of a command and those of its subcommands. Gives how many these are.
fn write_pages(command: &Command, to: &Path) -> io::Result<usize> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    std::fs::write(to.join(format!("{name}.1")), page)?;
    let mut count = 1;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        count += write_pages(subcommand, to)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound_with_and_without_settings() {
        command().debug_assert();
        described().debug_assert();
    }

    #[test]
    fn every_shell_completes_settings_and_subcommands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut described(), "ordo", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            for word in ["appendfsync", "everysec", "mark-every", "transfer-leader", "doctor"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let dir = tempfile::tempdir().expect("a directory");
        let man = Man { to: dir.path().join("man1") };
        man.write().expect("written");
        let page = |name: &str| std::fs::read_to_string(man.to.join(name)).expect(name);
        assert!(page("ordo-serve.1").contains("appendfsync"));
        assert!(page("ordo-backup-verify.1").contains("ordo"));
        assert!(page("ordo.1").contains("ordo\\-serve(1)"), "{}", page("ordo.1"));
    }
}
