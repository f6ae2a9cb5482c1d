//! Threads that share the work of one site.

use std::fmt;

/// Something that one thread does while others do the rest.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Threads that share the work of one site.
pub trait Workers: fmt::Debug + Send + Sync {
    /// How many jobs run at a time.
    fn count(&self) -> usize;

    /// Runs jobs, each on any thread and in any order, and returns when all have ended.
    fn run(&self, jobs: Vec<Job<'_>>);

    /// Fewer entries than these one thread decides sooner than several.
    fn entries_min(&self) -> usize {
        ENTRIES_MIN
    }
}

/// What jobs cost beside their work, without the start of a thread, is that of so many entries.
const ENTRIES_MIN: usize = 16;
/// The start of a thread takes some tens of microseconds, and an entry of a small transaction one or two.
const ENTRIES_MIN_OF_NEW_THREADS: usize = 128;

/// The calling thread, without others.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Workers for Alone {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

/// The calling thread and others, which last for one [`Workers::run`].
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// All of them, the calling one included.
    pub count: usize,
}

impl Workers for Threads {
    fn count(&self) -> usize {
        self.count.max(1)
    }

    fn entries_min(&self) -> usize {
        ENTRIES_MIN_OF_NEW_THREADS
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        let mut jobs = jobs.into_iter();
        let own = jobs.next();
        std::thread::scope(|scope| {
            jobs.for_each(|job| drop(scope.spawn(job)));
            own.into_iter().for_each(|job| job());
        });
    }
}
