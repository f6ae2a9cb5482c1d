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
}

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

    fn run(&self, jobs: Vec<Job<'_>>) {
        let mut jobs = jobs.into_iter();
        let own = jobs.next();
        std::thread::scope(|scope| {
            jobs.for_each(|job| drop(scope.spawn(job)));
            own.into_iter().for_each(|job| job());
        });
    }
}
