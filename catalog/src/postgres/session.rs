//! One connection: statements travel together and are answered in order.

use super::errors::{catalog_error, describe, is_refusal};
use crate::{
    CatalogError, Result,
    relational::{
        change::{now_ms, only},
        session::{Lock, Row, Session, Statement, Value, statement},
    },
    snapshot::TableRows,
    types::{ServerRun, UnixMs},
};
use deadpool_postgres::Object;
use std::{
    borrow::Cow,
    error::Error as StdError,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_postgres::{
    Error,
    types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked},
};

/// A connection taken from its pool. It goes back only when nothing is under way on it.
pub(crate) struct PostgresSession {
    /// `None` only while dropping.
    client: Option<Object>,
    /// What travels with the next statements, before them.
    deferred: Vec<Step>,
    /// What the deferred statements gave.
    answers_ahead: Vec<Vec<Row>>,
    /// When what was sent ahead was first answered.
    answered_ahead: Option<Instant>,
    in_transaction: bool,
    /// A call was begun and not finished: its future was dropped, or it failed.
    unfinished: bool,
    deadline: Duration,
}

/// What travels to the database.
enum Step {
    /// A transaction command.
    Command(&'static str),
    Statement(Statement),
}

impl Step {
    fn statement(&self) -> Option<&Statement> {
        match self {
            Step::Command(_) => None,
            Step::Statement(statement) => Some(statement),
        }
    }
}

/// When the server was started, in microseconds, as an expression: another server, or another run
/// of one, was started at another moment.
macro_rules! server_run {
    () => {
        "CAST(floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000) AS BIGINT)"
    };
}
pub(super) use server_run;

/// The database's clock in milliseconds, as an expression.
pub(super) const CLOCK_MS: &str = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)";

/// A statement that the server knows.
type Prepared = tokio_postgres::Statement;

/// A request on its way.
type Pending<'a> = Pin<Box<dyn Future<Output = std::result::Result<Vec<tokio_postgres::Row>, Error>> + Send + 'a>>;

impl PostgresSession {
    pub(super) fn new(client: Object, deadline: Duration) -> Self {
        PostgresSession {
            client: Some(client),
            deferred: Vec::new(),
            answers_ahead: Vec::new(),
            answered_ahead: None,
            in_transaction: false,
            unfinished: false,
            deadline,
        }
    }

    /// Begins a transaction with the next statements.
    pub(super) fn begin(&mut self, command: &'static str) {
        self.in_transaction = true;
        self.defer(command);
    }

    /// Gives up the transaction, in which nothing failed, with the next statements.
    pub(super) fn give_up(&mut self) {
        self.deferred = vec![Step::Command("ROLLBACK")];
        (self.answers_ahead, self.answered_ahead) = (Vec::new(), None);
    }

    /// Sends a transaction command with the next statements.
    pub(super) fn defer(&mut self, command: &'static str) {
        self.deferred.push(Step::Command(command));
    }

    /// Sends statements with the next ones; [`answers_ahead`](Self::answers_ahead) gives their
    /// answers.
    pub(super) fn send_ahead(&mut self, statements: Vec<Statement>) {
        self.deferred.extend(statements.into_iter().map(Step::Statement));
    }

    /// Whether the statements that were sent ahead have been answered.
    pub(super) fn has_begun(&self) -> bool {
        !self.answers_ahead.is_empty()
    }

    /// When statements that were sent ahead were first answered.
    pub(super) fn answered_ahead(&self) -> Option<Instant> {
        self.answered_ahead
    }

    /// What the statements gave that were sent ahead, in order. They are sent now if they still
    /// wait.
    pub(super) async fn answers_ahead(&mut self) -> Result<Vec<Vec<Row>>> {
        if self.deferred.iter().any(|deferred| matches!(deferred, Step::Statement(_))) {
            self.flush().await?;
        }
        Ok(std::mem::take(&mut self.answers_ahead))
    }

    /// Sends what was deferred now.
    pub(super) async fn flush(&mut self) -> Result<()> {
        self.run(Vec::new()).await.map(|_| ())
    }

    /// Ends the transaction.
    pub(super) async fn end(&mut self, command: &'static str) -> Result<()> {
        self.answers_ahead().await?;
        self.end_raw(command).await.map_err(|error| match error {
            EndError::Database(error) => catalog_error(&error),
            EndError::NoAnswer => CatalogError::Unavailable(SILENT.into()),
        })
    }

    /// Ends the transaction by a command that ends with `COMMIT`. Committed is what is here when
    /// this is `Ok`.
    pub(super) async fn commit(&mut self, end: &'static str) -> std::result::Result<(), CommitError> {
        self.end_raw(end).await.map_err(CommitError::from)
    }

    /// Ends the transaction, with the commands that are deferred; no statement may be. The error is
    /// kept as it is, because what a failed commit means depends on it.
    async fn end_raw(&mut self, command: &'static str) -> std::result::Result<(), EndError> {
        self.unfinished = true;
        let client = self.client.as_ref().ok_or(EndError::NoAnswer)?;
        let mut script = String::new();
        for deferred in self.deferred.drain(..) {
            let Step::Command(earlier) = deferred else { return Err(EndError::NoAnswer) };
            script.extend([earlier, "; "]);
        }
        script.push_str(command);
        match tokio::time::timeout(self.deadline, client.batch_execute(&script)).await {
            Ok(Ok(())) => {
                (self.unfinished, self.in_transaction) = (false, false);
                Ok(())
            }
            Ok(Err(error)) => Err(EndError::Database(error)),
            Err(_) => Err(EndError::NoAnswer),
        }
    }

    /// Sends statements without parameters as one text.
    pub(super) async fn script(&mut self, sql: &str) -> Result<()> {
        self.unfinished = true;
        let client = self.client.as_ref().ok_or_else(closed)?;
        client.batch_execute(sql).await.map_err(|error| catalog_error(&error))?;
        self.unfinished = false;
        Ok(())
    }

    /// The same as [`commit`](Self::commit), with the last statements, together; what those gave.
    pub(super) async fn run_and_commit(
        &mut self,
        statements: Vec<Statement>,
        end: &'static str,
    ) -> std::result::Result<Vec<Vec<Row>>, CommitError> {
        self.unfinished = true;
        let mut steps = std::mem::take(&mut self.deferred);
        steps.extend(statements.into_iter().map(Step::Statement));
        let client = self.client.as_ref().ok_or_else(|| CommitError::None(closed()))?;
        let until = tokio::time::Instant::now() + self.deadline;
        // Nothing of it is on its way before all of it is prepared.
        let prepared = tokio::time::timeout_at(until, Self::prepare(client, &steps)).await;
        let prepared = prepared
            .map_err(|_| CommitError::None(CatalogError::Unavailable(SILENT.into())))?
            .map_err(CommitError::None)?;
        steps.push(Step::Command(end));
        match tokio::time::timeout_at(until, Self::send(client, &steps, &prepared)).await {
            Ok(Ok(answers)) => {
                (self.unfinished, self.in_transaction) = (false, false);
                Self::rows(&steps, &answers).map_err(|error| CommitError::InDoubt(error.to_string()))
            }
            // Behind a statement that the server refused, the first command of the end fails and
            // its commit is skipped. The connection is good for a rollback, or is closed with the
            // transaction left in it.
            Ok(Err(error)) => {
                self.unfinished = !is_refusal(&error);
                Err(EndError::Database(error).into())
            }
            Err(_) => Err(EndError::NoAnswer.into()),
        }
    }

    /// Sends all steps together; the answers of the statements among them.
    async fn pipeline(client: &Object, steps: &[Step]) -> Result<Vec<Vec<Row>>> {
        let prepared = Self::prepare(client, steps).await?;
        let answers = Self::send(client, steps, &prepared).await.map_err(|error| catalog_error(&error))?;
        Self::rows(steps, &answers)
    }

    /// The answers of the statements among `steps`.
    fn rows(steps: &[Step], answers: &[Vec<tokio_postgres::Row>]) -> Result<Vec<Vec<Row>>> {
        let of_statements = answers.iter().zip(steps).filter(|(_, step)| step.statement().is_some());
        of_statements.map(|(rows, _)| rows.iter().map(row).collect()).collect()
    }

    /// The statements among `steps`, prepared: answered from the connection's cache but for the
    /// first time.
    async fn prepare(client: &Object, steps: &[Step]) -> Result<Vec<Prepared>> {
        let mut prepared = Vec::with_capacity(steps.len());
        for statement in steps.iter().filter_map(Step::statement) {
            prepared.push(client.prepare_cached(&text(statement)).await.map_err(|error| catalog_error(&error))?);
        }
        Ok(prepared)
    }

    /// Sends all steps together; the first error in their order.
    async fn send(
        client: &Object,
        steps: &[Step],
        prepared: &[Prepared],
    ) -> std::result::Result<Vec<Vec<tokio_postgres::Row>>, Error> {
        let params: Vec<Vec<_>> = steps
            .iter()
            .filter_map(Step::statement)
            .map(|statement| statement.params.iter().map(parameter).collect())
            .collect();
        let mut queries = prepared.iter().zip(&params);
        let send = |step: &Step| -> Pending<'_> {
            match step {
                Step::Command(command) => {
                    let command = *command;
                    Box::pin(async move { client.batch_execute(command).await.map(|()| Vec::new()) })
                }
                Step::Statement(_) => {
                    let (known, params) = queries.next().expect("each statement was prepared");
                    Box::pin(client.query(known, params))
                }
            }
        };
        in_order(steps.iter().map(send).collect()).await
    }
}

/// What is said of a database from which nothing comes in time.
const SILENT: &str = "the database does not answer";

/// Why a commit was not confirmed.
pub(super) enum CommitError {
    /// There was none.
    None(CatalogError),
    /// Nobody knows whether there was one.
    InDoubt(String),
}

/// Why a transaction's end was not confirmed.
enum EndError {
    Database(Error),
    NoAnswer,
}

impl From<EndError> for CommitError {
    fn from(error: EndError) -> Self {
        match error {
            EndError::Database(error) if is_refusal(&error) => CommitError::None(catalog_error(&error)),
            EndError::Database(error) => CommitError::InDoubt(describe(&error)),
            EndError::NoAnswer => CommitError::InDoubt(SILENT.into()),
        }
    }
}

/// Sends all requests, then takes the answers one after the other; the first error in that order,
/// once all are in.
///
/// A request is sent when its future is first polled, so polling each once in order puts them on
/// the wire together.
async fn in_order(mut pending: Vec<Pending<'_>>) -> std::result::Result<Vec<Vec<tokio_postgres::Row>>, Error> {
    let mut early: Vec<Option<_>> = Vec::with_capacity(pending.len());
    poll_fn(|cx| {
        for request in &mut pending {
            early.push(match request.as_mut().poll(cx) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            });
            // What cannot be sent keeps back what would come behind it.
            if let Some(Some(Err(_))) = early.last() {
                break;
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut answers = Vec::with_capacity(pending.len());
    let mut failure = None;
    for (request, early) in pending.into_iter().zip(early) {
        let answer = match early {
            Some(answer) => answer,
            None => request.await,
        };
        match answer {
            Ok(rows) => answers.push(rows),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(answers), Err)
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && (self.unfinished || self.in_transaction)
        {
            // Taken from the pool and closed: the server rolls back.
            drop(Object::take(client));
        }
    }
}

impl Session for PostgresSession {
    const EXCLUSIVE: bool = false;
    const ROUND_TRIPS: bool = true;
    // A transaction that locked the row before has an id. Where `BEGIN` failed alone, and what was
    // sent with it is carried out by itself, there is none: nothing takes a number.
    const NEXT_NUMBER: &str = "UPDATE counters SET value = value + 1 \
         WHERE name = 'mutations' AND pg_current_xact_id_if_assigned() IS NOT NULL RETURNING value";

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        if statements.is_empty() && self.deferred.is_empty() {
            return Ok(Vec::new());
        }
        self.unfinished = true;
        let mut steps = std::mem::take(&mut self.deferred);
        let ahead = steps.iter().filter_map(Step::statement).count();
        steps.extend(statements.into_iter().map(Step::Statement));
        let client = self.client.as_ref().ok_or_else(closed)?;
        let answers = tokio::time::timeout(self.deadline, Self::pipeline(client, &steps))
            .await
            .map_err(|_| CatalogError::Unavailable(SILENT.into()))?;
        // After an error the connection is good for a rollback, unless it is the connection that is
        // in trouble.
        self.unfinished = matches!(answers, Err(CatalogError::Unavailable(_)));
        let mut answers = answers?;
        if ahead > 0 {
            self.answered_ahead.get_or_insert_with(Instant::now);
        }
        self.answers_ahead.extend(answers.drain(..ahead));
        Ok(answers)
    }

    async fn clock_ms(&mut self) -> Result<UnixMs> {
        clock_ms(self).await
    }

    async fn run_noting_server(&mut self, statements: Vec<Statement>) -> Result<(Vec<Vec<Row>>, ServerRun)> {
        run_noting_server(self, statements).await
    }

    fn now_ms(&self) -> UnixMs {
        now_ms()
    }

    async fn hand_over(&mut self, to: &mpsc::Sender<TableRows>, rows: TableRows) -> bool {
        to.send(rows).await.is_ok()
    }
}

/// The database's clock, by a session of it.
pub(super) async fn clock_ms<S: Session>(session: &mut S) -> Result<UnixMs> {
    let answers = session.run(vec![Statement::made(format!("SELECT {CLOCK_MS}"), vec![])]).await?;
    only(&answers, 0)?.int(0)
}

/// [`Session::run_noting_server`] of a session of this database.
pub(super) async fn run_noting_server<S: Session>(
    session: &mut S,
    mut statements: Vec<Statement>,
) -> Result<(Vec<Vec<Row>>, ServerRun)> {
    statements.push(statement!(concat!("SELECT ", server_run!())));
    let last = statements.len() - 1;
    let mut answers = session.run(statements).await?;
    let run = only(&answers, last)?.int(0)?;
    answers.truncate(last);
    Ok((answers, run))
}

fn parameter(value: &Value) -> &(dyn ToSql + Sync) {
    value
}

fn closed() -> CatalogError {
    CatalogError::Unavailable("the connection is closed".into())
}

/// A statement as it is sent.
fn text(statement: &Statement) -> Cow<'static, str> {
    match statement.lock {
        Lock::None if statement.late.is_empty() => statement.sql.clone(),
        Lock::None => Cow::Owned(with_number(&statement.sql, statement.late, statement.params.len())),
        Lock::Share => Cow::Owned(format!("{} FOR SHARE", statement.sql)),
        Lock::Update => Cow::Owned(format!("{} FOR UPDATE", statement.sql)),
    }
}

/// A statement whose parameters at `places` are what is made of them and of a number: the last one
/// that was given, less the parameter at `back`.
fn with_number(sql: &str, places: &[usize], back: usize) -> String {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (place, rest) = piece.split_at(digits);
        match place.parse().is_ok_and(|place: usize| places.contains(&place)) {
            true => {
                text += &format!("(SELECT (value - ${back}) # ${place} FROM counters WHERE name = 'mutations'){rest}")
            }
            false => text.extend(["$", piece]),
        }
    }
    text
}

fn row(row: &tokio_postgres::Row) -> Result<Row> {
    let value = |column| row.try_get::<_, Value>(column).map_err(|error| CatalogError::Other(describe(&error)));
    (0..row.len()).map(value).collect::<Result<_>>().map(Row)
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(match *ty {
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
            Type::BYTEA => Value::Bytes(raw.to_vec()),
            _ => Value::Text(String::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Value::Null)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8 | Type::INT4 | Type::BYTEA | Type::TEXT | Type::VARCHAR)
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Int(number), &Type::INT8) => number.to_sql(ty, out),
            (Value::Text(text), &Type::TEXT) => text.to_sql(ty, out),
            (Value::Bytes(bytes), &Type::BYTEA) => bytes.to_sql(ty, out),
            (value, ty) => Err(format!("{value:?} is no {ty}").into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8 | Type::TEXT | Type::BYTEA)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::with_number;

    #[test]
    fn a_number_that_comes_late_stands_where_its_parameters_do() {
        let sql = "INSERT INTO t (a, b, c) VALUES ($1, $2, $11)";
        assert_eq!(with_number(sql, &[], 12), sql);
        assert_eq!(
            with_number(sql, &[1, 11], 12),
            "INSERT INTO t (a, b, c) VALUES ((SELECT (value - $12) # $1 FROM counters WHERE name = 'mutations'), $2, \
             (SELECT (value - $12) # $11 FROM counters WHERE name = 'mutations'))"
        );
    }
}
