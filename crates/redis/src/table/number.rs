//! One number for each command and each subcommand, for whoever keeps something about each of them.

use super::command::{Command, Run};
use super::entries::COMMANDS;

/// The number of a command or subcommand: below [`COMMANDS_COUNT`], and the same for as long as the program
/// runs. A container is followed by its subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandNumber(u16);

/// How many commands there are, containers and their subcommands each counted for themselves.
pub const COMMANDS_COUNT: usize = {
    let (mut count, mut place) = (0, 0);
    while place < COMMANDS.len() {
        count += 1 + subcommands_of(&COMMANDS[place]).len();
        place += 1;
    }
    count
};

const _: () = assert!(COMMANDS_COUNT <= u16::MAX as usize, "numbers have 16 bits");

/// The number of each place in [`COMMANDS`].
static FIRST: [u16; COMMANDS.len()] = {
    let mut first = [0; COMMANDS.len()];
    let (mut number, mut place) = (0, 0);
    while place < COMMANDS.len() {
        first[place] = number as u16;
        number += 1 + subcommands_of(&COMMANDS[place]).len();
        place += 1;
    }
    first
};

static BY_NUMBER: [&Command; COMMANDS_COUNT] = {
    let mut all = [&COMMANDS[0]; COMMANDS_COUNT];
    let (mut number, mut place) = (0, 0);
    while place < COMMANDS.len() {
        all[number] = &COMMANDS[place];
        number += 1;
        let subcommands = subcommands_of(&COMMANDS[place]);
        let mut subplace = 0;
        while subplace < subcommands.len() {
            all[number] = &subcommands[subplace];
            (number, subplace) = (number + 1, subplace + 1);
        }
        place += 1;
    }
    all
};

const fn subcommands_of(command: &Command) -> &'static [Command] {
    match command.run {
        Run::Container(subcommands) => subcommands,
        _ => &[],
    }
}

impl CommandNumber {
    /// The number of a place in [`COMMANDS`], and perhaps of a place among that container's subcommands.
    #[inline]
    pub fn of_place(place: usize, subplace: Option<usize>) -> CommandNumber {
        CommandNumber(FIRST[place] + subplace.map_or(0, |subplace| subplace as u16 + 1))
    }
    /// The number with this index among all; `None` if there are not so many.
    pub fn of_index(index: usize) -> Option<CommandNumber> {
        (index < COMMANDS_COUNT).then_some(CommandNumber(index as u16))
    }
    /// As an index into what is kept for all of them.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
    /// The command or subcommand.
    #[inline]
    pub fn command(self) -> &'static Command {
        BY_NUMBER[self.index()]
    }
    /// All numbers, in ascending order.
    pub fn all() -> impl Iterator<Item = CommandNumber> {
        (0..COMMANDS_COUNT).filter_map(CommandNumber::of_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_table() {
        let mut numbers = CommandNumber::all();
        for (place, command) in COMMANDS.iter().enumerate() {
            let number = numbers.next().expect("a number for each");
            assert_eq!(number, CommandNumber::of_place(place, None));
            assert_eq!(number.command().name, command.name);
            for (subplace, subcommand) in command.subcommands().iter().enumerate() {
                let number = numbers.next().expect("a number for each");
                assert_eq!(number, CommandNumber::of_place(place, Some(subplace)));
                assert_eq!(number.command().name, subcommand.name);
            }
        }
        assert_eq!(numbers.next(), None);
        assert_eq!(CommandNumber::of_index(COMMANDS_COUNT), None);
    }
}
