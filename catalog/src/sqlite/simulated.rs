//! One database that several engines of one process share, as they would share PostgreSQL: for
//! simulations.
//!
//! Everything happens where it is asked for: no thread, no wait but those that the [`Weather`]
//! makes. A change is one transaction; between two of them the database can be copied, as a standby
//! would, and set back to such a copy, as a failover would.

use super::{
    SqliteOptions,
    connection::{self, SqliteSession, finish},
    options::Place,
};
use crate::{
    CatalogError, Gate, Result,
    relational::{
        apply::apply,
        change::{Change, Outcome},
        engine::{Consistency, Engine, Question},
        session::{Row, Session, Statement, Value},
    },
    snapshot::TableRows,
    types::{NO_SERVER, ServerRun, UnixMs},
};
use async_trait::async_trait;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tokio::sync::mpsc;

/// A call to the database, as the network between it and an engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It reads.
    Read,
    /// It may change something.
    Change,
}

/// What lies between an engine and the database, and the clocks of both.
#[async_trait]
pub trait Weather: Send + Sync + 'static {
    /// A call is on its way. An error keeps it from arriving.
    async fn before(&self, call: Call) -> Result<()>;
    /// An answer is on its way; `is_changed` says whether something was committed. An error takes
    /// its place.
    async fn after(&self, call: Call, is_changed: bool) -> Result<()>;
    /// The clock of the machine that the engine runs on.
    fn now_ms(&self) -> UnixMs;
    /// The clock that leases are measured with.
    fn database_ms(&self) -> UnixMs;
    /// Whether changes are acknowledged without passing the gate: a deliberate bug.
    fn forgets_the_gate(&self) -> bool {
        false
    }
    /// Whether nobody is told that the database went back: a deliberate bug.
    fn hides_runs(&self) -> bool {
        false
    }
}

/// The database.
pub struct SimulatedDatabase(Mutex<State>);

struct State {
    place: Place,
    session: SqliteSession,
    idle: Vec<SqliteSession>,
    /// How often it was set back.
    age: ServerRun,
}

impl SimulatedDatabase {
    /// Opens the database in the file `path`, creating it when it is not there.
    ///
    /// # Errors
    /// As [`SqliteCatalog::open`](crate::SqliteCatalog::open).
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let place =
            Place { path: path.as_ref().to_owned(), options: SqliteOptions { sync: false, ..Default::default() } };
        let session = open_session(&place)?;
        Ok(Arc::new(Self(Mutex::new(State { place, session, idle: Vec::new(), age: 0 }))))
    }

    /// The catalog, as an engine behind `weather` sees it.
    pub fn connect(self: &Arc<Self>, weather: Arc<dyn Weather>) -> SimulatedCatalog {
        let gate = OnceLock::new();
        if weather.forgets_the_gate() {
            // The first one stays, whatever an engine brings.
            let _ = gate.set(Arc::new(Forgotten) as Arc<dyn Gate>);
        }
        SimulatedCatalog { database: self.clone(), weather, gate }
    }

    /// Writes a copy as of now to the file `path`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn copy_to(&self, path: impl AsRef<Path>) -> Result<()> {
        let state = self.state();
        state.session.execute("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let failed = |error| CatalogError::Unavailable(format!("{}: {error}", path.as_ref().display()));
        std::fs::copy(&state.place.path, path.as_ref()).map(drop).map_err(failed)
    }

    /// Goes on from what lies in the file `path`: a copy of before, or another database.
    ///
    /// # Errors
    /// As [`SimulatedDatabase::open`].
    pub fn go_on_from(&self, path: impl Into<PathBuf>) -> Result<()> {
        let mut state = self.state();
        let place = Place { path: path.into(), ..state.place.clone() };
        state.session = open_session(&place)?;
        state.idle.clear();
        state.age += 1;
        state.place = place;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: &mut Change, weather: &Arc<dyn Weather>) -> Result<(Outcome, ServerRun)> {
        let mut state = self.state();
        state.session.command("BEGIN IMMEDIATE")?;
        let run = if weather.hides_runs() { NO_SERVER } else { state.age };
        let mut session = Simulated { session: &mut state.session, run, weather: weather.clone() };
        let outcome = finish(apply(&mut session, change));
        let ends = if matches!(outcome, Ok(Outcome::Unchanged) | Err(_)) { "ROLLBACK" } else { "COMMIT" };
        if !state.session.connection.is_autocommit() {
            state.session.command(ends)?;
        }
        Ok((outcome?, run))
    }
}

fn open_session(place: &Place) -> Result<SqliteSession> {
    let session = connection::open_and_migrate(place)?;
    session.execute("PRAGMA synchronous = OFF")?;
    Ok(session)
}

/// A gate that stands open.
struct Forgotten;

#[async_trait]
impl Gate for Forgotten {
    async fn pass(&self, _run: ServerRun) -> Result<()> {
        Ok(())
    }
}

/// The catalog of one engine.
pub struct SimulatedCatalog {
    database: Arc<SimulatedDatabase>,
    weather: Arc<dyn Weather>,
    gate: OnceLock<Arc<dyn Gate>>,
}

/// A connection whose clocks are the simulation's.
pub(crate) struct Simulated<S> {
    session: S,
    run: ServerRun,
    weather: Arc<dyn Weather>,
}

impl<S: std::borrow::BorrowMut<SqliteSession> + Send> Session for Simulated<S> {
    const EXCLUSIVE: bool = false;
    const ROUND_TRIPS: bool = false;
    const NEXT_NUMBER: &str = "UPDATE counters SET value = value + 1 WHERE name = 'mutations' RETURNING value";

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        self.session.borrow_mut().run(statements).await
    }

    async fn clock_ms(&mut self) -> Result<UnixMs> {
        Ok(self.weather.database_ms())
    }

    async fn run_noting_server(&mut self, statements: Vec<Statement>) -> Result<(Vec<Vec<Row>>, ServerRun)> {
        Ok((self.run(statements).await?, self.run))
    }

    fn now_ms(&self) -> UnixMs {
        self.weather.now_ms()
    }

    async fn run_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<()> {
        self.session.borrow_mut().run_each(sql, rows).await
    }

    async fn hand_over(&mut self, to: &mpsc::Sender<TableRows>, rows: TableRows) -> bool {
        to.send(rows).await.is_ok()
    }
}

impl Engine for SimulatedCatalog {
    type Session = Simulated<SqliteSession>;

    fn gate(&self) -> &OnceLock<Arc<dyn Gate>> {
        &self.gate
    }

    fn now_ms(&self) -> UnixMs {
        self.weather.now_ms()
    }

    async fn carry_out(&self, mut change: Change) -> Result<(Outcome, ServerRun)> {
        self.weather.before(Call::Change).await?;
        let outcome = self.database.change(&mut change, &self.weather);
        let is_changed = !matches!(outcome, Ok((Outcome::Unchanged, _)) | Err(_));
        self.weather.after(Call::Change, is_changed).await?;
        outcome
    }

    async fn read<T: Send + 'static>(
        &self,
        consistency: Consistency,
        question: Question<Self::Session, T>,
    ) -> Result<T> {
        self.weather.before(Call::Read).await?;
        let (pooled, place, age) = {
            let mut state = self.database.state();
            (state.idle.pop(), state.place.clone(), state.age)
        };
        let session = match pooled {
            Some(session) => session,
            None => connection::open_reading(&place.path)?,
        };
        let run = if self.weather.hides_runs() { NO_SERVER } else { age };
        let mut session = Simulated { session, run, weather: self.weather.clone() };
        let answer = match consistency {
            Consistency::Point | Consistency::Statement => question(&mut session).await,
            Consistency::Snapshot => {
                session.session.command("BEGIN")?;
                let answer = question(&mut session).await;
                session.session.command("COMMIT")?;
                answer
            }
        };
        {
            let mut state = self.database.state();
            // A connection to what was set back meanwhile is of no use.
            if state.age == age {
                state.idle.push(session.session);
            }
        }
        self.weather.after(Call::Read, false).await?;
        answer
    }
}
