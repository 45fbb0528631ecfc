//! The little that both databases have in common: statements with positional parameters, values of
//! three types.

pub(crate) use crate::value::Value;
use crate::{
    CatalogError, Result,
    snapshot::TableRows,
    types::{Seq, ServerRun, UnixMs},
};
use std::{borrow::Cow, future::Future};
use tokio::sync::mpsc;

/// A length or offset as the signed integer both databases have.
///
/// # Errors
/// [`CatalogError::Invalid`] from 2^63 on.
pub(crate) fn signed(value: u64) -> Result<Value> {
    i64::try_from(value).map(Value::Int).map_err(|_| CatalogError::Invalid(format!("{value} is out of range")))
}

/// One row of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Row(pub(crate) Vec<Value>);

impl Row {
    pub(crate) fn int(&self, column: usize) -> Result<i64> {
        match self.0.get(column) {
            Some(Value::Int(value)) => Ok(*value),
            other => Err(unexpected(column, "an integer", other)),
        }
    }

    pub(crate) fn optional_int(&self, column: usize) -> Result<Option<i64>> {
        if self.is_null(column) { Ok(None) } else { self.int(column).map(Some) }
    }

    pub(crate) fn unsigned(&self, column: usize) -> Result<u64> {
        let value = self.int(column)?;
        u64::try_from(value).map_err(|_| CatalogError::Damaged(format!("column {column} is negative: {value}")))
    }

    pub(crate) fn small(&self, column: usize) -> Result<u32> {
        let value = self.int(column)?;
        u32::try_from(value).map_err(|_| CatalogError::Damaged(format!("column {column} is out of range: {value}")))
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str> {
        match self.0.get(column) {
            Some(Value::Text(value)) => Ok(value),
            other => Err(unexpected(column, "text", other)),
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8]> {
        match self.0.get(column) {
            Some(Value::Bytes(value)) => Ok(value),
            other => Err(unexpected(column, "bytes", other)),
        }
    }

    pub(crate) fn optional_bytes(&self, column: usize) -> Result<Option<Vec<u8>>> {
        if self.is_null(column) { Ok(None) } else { Ok(Some(self.bytes(column)?.to_vec())) }
    }

    pub(crate) fn array<const N: usize>(&self, column: usize) -> Result<[u8; N]> {
        let bytes = self.bytes(column)?;
        bytes
            .try_into()
            .map_err(|_| CatalogError::Damaged(format!("column {column} has {} bytes, not {N}", bytes.len())))
    }

    /// A client's key, which is stored as bytes so that order is the order of bytes.
    pub(crate) fn key(&self, column: usize) -> Result<String> {
        String::from_utf8(self.bytes(column)?.to_vec())
            .map_err(|_| CatalogError::Damaged(format!("column {column} is not UTF-8")))
    }

    pub(crate) fn json(&self, column: usize) -> Result<serde_json::Value> {
        serde_json::from_str(self.text(column)?)
            .map_err(|error| CatalogError::Damaged(format!("column {column} is not JSON: {error}")))
    }

    pub(crate) fn is_null(&self, column: usize) -> bool {
        matches!(self.0.get(column), Some(Value::Null))
    }
}

fn unexpected(column: usize, wanted: &str, found: Option<&Value>) -> CatalogError {
    let found = match found {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Int(_)) => "an integer",
        Some(Value::Text(_)) => "text",
        Some(Value::Bytes(_)) => "bytes",
    };
    CatalogError::Damaged(format!("column {column} holds {found} instead of {wanted}"))
}

/// How a read inside a mutation locks the row it finds. A database with one writer needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Not at all.
    None,
    /// Nobody may change it until the transaction ends.
    Share,
    /// Nobody else may lock it until the transaction ends.
    Update,
}

/// The number of a change that gets one when everything else is decided. No mutation has it.
pub(crate) const LATE: Seq = 0;

/// A statement with its parameters. Parameters are `$1`, `$2` …, each first used in that order.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Value>,
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the embedded catalog needs no locks"))]
    pub(crate) lock: Lock,
    /// See [`numbered`](Self::numbered).
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the embedded catalog knows every number"))]
    pub(crate) late: &'static [usize],
}

impl Statement {
    pub(crate) fn new(sql: &'static str, params: Vec<Value>) -> Self {
        Statement { sql: Cow::Borrowed(sql), params, lock: Lock::None, late: &[] }
    }

    /// A statement whose text is put together from names of the schema; never from anything else.
    pub(crate) fn made(sql: String, params: Vec<Value>) -> Self {
        Statement { sql: Cow::Owned(sql), params, lock: Lock::None, late: &[] }
    }

    pub(crate) fn locking(sql: &'static str, params: Vec<Value>, lock: Lock) -> Self {
        Statement { sql: Cow::Borrowed(sql), params, lock, late: &[] }
    }

    /// The same of a change with the number `seq`, which the parameters at `places`, from 1 on, are
    /// made of by XOR: the number itself, or a checksum. If it is [`LATE`], the database works them
    /// out once the change has its number.
    pub(crate) fn numbered(self, seq: Seq, places: &'static [usize]) -> Self {
        if seq == LATE { Statement { late: places, ..self } } else { self }
    }

    /// The same of a change whose number is `after` less than the last one that was given.
    #[cfg(feature = "postgres")]
    pub(crate) fn counted_back(mut self, after: i64) -> Self {
        if !self.late.is_empty() {
            self.params.push(after.into());
        }
        self
    }
}

/// `statement!("SELECT … $1 …", value, …)`: a [`Statement`] whose parameters are anything that
/// becomes a [`Value`].
macro_rules! statement {
    ($sql:expr $(, $value:expr)* $(,)?) => {
        $crate::relational::session::Statement::new($sql, vec![$($crate::relational::session::Value::from($value)),*])
    };
}
pub(crate) use statement;

/// A connection inside a transaction (or, for a single statement, on its own).
pub(crate) trait Session: Send {
    /// Whether one process owns the database, so that a new writer means that earlier ones are
    /// dead.
    const EXCLUSIVE: bool;

    /// Whether a statement is a journey, so that few large ones are better than many small ones.
    const ROUND_TRIPS: bool;

    /// The statement that gives a mutation its number, inside a transaction.
    const NEXT_NUMBER: &str;

    /// Runs statements in order and gives each one's rows. An error ends the run; where several
    /// statements travel together, those after the failed one are not carried out either.
    fn run(&mut self, statements: Vec<Statement>) -> impl Future<Output = Result<Vec<Vec<Row>>>> + Send;

    /// Runs the last statements of a change, whose answers decide nothing: once they are carried
    /// out, the change is what was decided.
    fn run_last(&mut self, statements: Vec<Statement>) -> impl Future<Output = Result<()>> + Send {
        async move { self.run(statements).await.map(drop) }
    }

    /// The same as [`run`](Self::run), and the run of the server that answered; in one journey.
    fn run_noting_server(
        &mut self,
        statements: Vec<Statement>,
    ) -> impl Future<Output = Result<(Vec<Vec<Row>>, ServerRun)>> + Send;

    /// The clock that leases are measured with: the database's where several processes share it.
    fn clock_ms(&mut self) -> impl Future<Output = Result<UnixMs>> + Send;

    /// This process's clock, for records only; nothing is decided by it.
    fn now_ms(&self) -> UnixMs;

    /// Sends rows on to whoever waits for them, waiting in turn for room; false when nobody does.
    fn hand_over(&mut self, to: &mpsc::Sender<TableRows>, rows: TableRows) -> impl Future<Output = bool> + Send;

    /// Runs one statement for each row of its parameters.
    fn run_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> impl Future<Output = Result<()>> + Send {
        let statements = rows.iter().map(|params| Statement::made(sql.to_owned(), params.clone())).collect();
        async move { self.run(statements).await.map(drop) }
    }

    /// What an embedded database finds wrong with itself, in up to about `most` sentences.
    fn disagreements(&mut self, most: usize) -> impl Future<Output = Result<Vec<String>>> + Send {
        let _ = most;
        async { Ok(Vec::new()) }
    }

    /// Runs one statement.
    fn query(&mut self, statement: Statement) -> impl Future<Output = Result<Vec<Row>>> + Send {
        async move { Ok(self.run(vec![statement]).await?.pop().unwrap_or_default()) }
    }

    /// Runs one statement of which at most one row is wanted.
    fn first(&mut self, statement: Statement) -> impl Future<Output = Result<Option<Row>>> + Send {
        async move { Ok(self.query(statement).await?.into_iter().next()) }
    }
}
