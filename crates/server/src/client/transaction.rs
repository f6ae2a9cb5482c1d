//! A transaction that a client holds open: ORDO.BEGIN, commands, ORDO.COMMIT (docs/hierarchy.md).

use super::{Answer, Client, ClientError};

/// An open transaction on a connection. It is rolled back when it is dropped.
pub struct Transaction<'a> {
    client: &'a mut Client,
    is_over: bool,
}

impl Client {
    /// Begins a transaction, which only reads if so asked.
    ///
    /// # Errors
    /// The connection is lost, or the server holds no transactions open.
    pub fn begin(&mut self, is_read_only: bool) -> Result<Transaction<'_>, ClientError> {
        let words = ["ORDO.BEGIN", "READONLY"];
        self.call(&words[..1 + usize::from(is_read_only)])?.text("ORDO.BEGIN")?;
        Ok(Transaction { client: self, is_over: false })
    }

    /// Has a transaction run and commit, again after each conflict, at most `attempts` times: at least once.
    ///
    /// # Errors
    /// Whatever `run` returns, or what the last attempt was answered.
    pub fn transact<T>(
        &mut self,
        attempts: u32,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut left = attempts;
        loop {
            left = left.saturating_sub(1);
            let mut transaction = self.begin(false)?;
            let ended = run(&mut transaction).and_then(|result| transaction.commit().map(|()| result));
            match ended {
                Err(error) if is_conflict(&error) && left > 0 => {}
                ended => return ended,
            }
        }
    }
}

/// Whether a transaction had no effect because of others, and may be run again.
pub fn is_conflict(error: &ClientError) -> bool {
    match error {
        ClientError::Unexpected { answer: Answer::Error(text), .. } => text.starts_with("CONFLICT "),
        _ => false,
    }
}

impl Transaction<'_> {
    /// Runs a command in the transaction.
    ///
    /// # Errors
    /// The connection is lost, or the answer is an error: of the command alone, or of the whole transaction,
    /// which then has no effect (`CONFLICT`, `TIMEOUT`).
    pub fn call(&mut self, words: &[&str]) -> Result<Answer, ClientError> {
        match self.client.call(words)? {
            answer @ Answer::Error(_) => Err(ClientError::Unexpected { command: words.join(" "), answer }),
            answer => Ok(answer),
        }
    }

    /// Commits.
    ///
    /// # Errors
    /// The transaction has no effect ([`is_conflict`]), or nobody knows (`ORDOUNKNOWN`, or a connection that
    /// is lost).
    pub fn commit(mut self) -> Result<(), ClientError> {
        self.is_over = true;
        self.client.call(&["ORDO.COMMIT"])?.text("ORDO.COMMIT").map(|_| ())
    }

    /// Ends it without effect.
    ///
    /// # Errors
    /// The connection is lost, which ends it as well.
    pub fn roll_back(mut self) -> Result<(), ClientError> {
        self.is_over = true;
        self.client.call(&["ORDO.ROLLBACK"]).map(|_| ())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A connection that is lost rolls back by itself.
            let _ = self.client.call(&["ORDO.ROLLBACK"]);
        }
    }
}
