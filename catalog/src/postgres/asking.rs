//! Changes on their way: what each asks the database, step by step.
//!
//! A change asks, decides, and asks again. Here it asks whoever carries its group, who sends what
//! several of them ask together ([`together`](super::together), [`late`](super::late)).

use super::{
    foresight::{Foreseen, Foresight},
    session::{PostgresSession, clock_ms, run_noting_server},
};
use crate::{
    CatalogError, Result,
    relational::{
        apply::apply,
        change::{Change, Outcome, now_ms, only},
        session::{LATE, Lock, Row, Session, Statement},
        stripes,
    },
    snapshot::TableRows,
    types::{BucketId, ServerRun, UnixMs},
};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
};

/// Goes on with each as far as it can without an answer. What they wait for is there or is not:
/// none of them may pause for another task.
pub(super) async fn go_on(steps: &mut [ChangeStep<'_>]) {
    let all_go_on = poll_fn(|context| {
        steps.iter_mut().for_each(|step| step.go_on(context));
        Poll::Ready(())
    });
    unconstrained(all_go_on).await;
}

/// Gives each request its answers, of which there is one for each statement.
pub(super) fn answer(requests: Vec<Inquiry>, answers: Vec<Vec<Row>>) {
    let mut answers = answers.into_iter();
    for request in requests {
        let own = answers.by_ref().take(request.count).collect();
        // Its change waits for this.
        let _ = request.answer.send(Ok(own));
    }
}

/// Makes one change, which asks by `session`.
pub(super) async fn make_one(mut session: ChangeSession<'_>, change: &mut Change) -> Result<Outcome> {
    apply(&mut session, change).await
}

/// A change on its way.
pub(super) enum ChangeStep<'a> {
    Waits(Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>),
    Ended(Result<Outcome>),
}

impl ChangeStep<'_> {
    /// Goes on as far as it can without an answer.
    fn go_on(&mut self, context: &mut Context<'_>) {
        if let ChangeStep::Waits(change) = self
            && let Poll::Ready(outcome) = change.as_mut().poll(context)
        {
            *self = ChangeStep::Ended(outcome);
        }
    }

    /// Whether it has come to its end without a change.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, ChangeStep::Ended(Ok(Outcome::Unchanged) | Err(_)))
    }

    pub(super) fn end(self) -> Option<Result<Outcome>> {
        match self {
            ChangeStep::Ended(outcome) => Some(outcome),
            ChangeStep::Waits(_) => None,
        }
    }
}

/// What a change wants to know or to have written before it goes on.
pub(super) struct Inquiry {
    /// The change's place in the group.
    pub(super) of: usize,
    /// Whether it decides by this. The first thing that each asks for is its number.
    pub(super) is_read: bool,
    /// Whether nothing of it is looked at by its change, which then is made.
    pub(super) is_last: bool,
    pub(super) statements: Vec<Statement>,
    pub(super) count: usize,
    pub(super) answer: oneshot::Sender<Result<Vec<Vec<Row>>>>,
}

/// The session of one change: hands its statements to whoever carries its group.
pub(super) struct ChangeSession<'a> {
    of: usize,
    has_asked: bool,
    asking: mpsc::UnboundedSender<Inquiry>,
    foresight: &'a Foresight,
    /// What will be asked after the first statements, and travels with them.
    ahead: Vec<Statement>,
    foreseen: Foreseen,
    /// What it counts on if it has its turn at its end.
    late: Option<Late>,
}

impl<'a> ChangeSession<'a> {
    pub(super) fn new(
        of: usize,
        foresight: &'a Foresight,
        change: &Change,
        asking: mpsc::UnboundedSender<Inquiry>,
    ) -> Self {
        let (ahead, foreseen) = (foresight.reads(change), Foreseen::default());
        ChangeSession { of, has_asked: false, asking, foresight, ahead, foreseen, late: None }
    }

    /// The same for a change that has its turn at its end.
    pub(super) fn with_turn_at_end(self, late: Late) -> Self {
        ChangeSession { late: Some(late), ..self }
    }

    async fn ask(&mut self, mut statements: Vec<Statement>, is_read: bool, is_last: bool) -> Result<Vec<Vec<Row>>> {
        let given_up = || CatalogError::Other("a change was given up because of another one".into());
        if let Some(late) = &self.late {
            if !is_read && !is_last {
                // A quota decides about it.
                self.foresight.learn_limit(late.bucket);
                return Err(given_up());
            }
            // Nobody is kept from changing what is read before the turn.
            statements.iter_mut().for_each(|statement| statement.lock = Lock::None);
        }
        self.has_asked = true;
        let (answer, answered) = oneshot::channel();
        let count = statements.len();
        let request = Inquiry { of: self.of, is_read, is_last, statements, count, answer };
        self.asking.send(request).map_err(|_| given_up())?;
        answered.await.map_err(|_| given_up())?
    }
}

impl Session for ChangeSession<'_> {
    const EXCLUSIVE: bool = PostgresSession::EXCLUSIVE;
    const ROUND_TRIPS: bool = PostgresSession::ROUND_TRIPS;
    const NEXT_NUMBER: &'static str = PostgresSession::NEXT_NUMBER;

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        if !self.has_asked {
            let (first, ahead) = (statements.len(), std::mem::take(&mut self.ahead));
            let mut asked: Vec<_> = statements.into_iter().chain(ahead.iter().cloned()).collect();
            if let Some(late) = &self.late {
                // In the place of the number.
                asked[0] = late.read();
            }
            let mut answers = self.ask(asked, true, false).await?;
            if let Some(late) = &mut self.late {
                answers[0] = late.answer_for_number(&answers)?;
            }
            self.foreseen = Foreseen::of(ahead, answers.split_off(first));
            return Ok(answers);
        }
        if let Some(answers) = self.foreseen.answers(&statements) {
            return Ok(answers);
        }
        self.foresight.learn(&statements);
        let is_read = statements.iter().all(|statement| statement.sql.starts_with("SELECT"));
        self.ask(statements, is_read, false).await
    }

    async fn run_last(&mut self, statements: Vec<Statement>) -> Result<()> {
        let statements = match &self.late {
            Some(late) => late.writes(statements),
            None => statements,
        };
        self.ask(statements, false, true).await.map(drop)
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

/// What a change counts on that has its turn at its end.
pub(super) struct Late {
    pub(super) bucket: BucketId,
    pub(super) stripe: i64,
    /// How many changes of its group, before it, are counted in its stripe.
    pub(super) before: i64,
    /// How many numbers of its group come after its own.
    pub(super) after: i64,
    /// What was counted in its stripe, and in that of all, before it read anything else.
    pub(super) counted: (i64, i64),
}

impl Late {
    /// The statement that is answered before all others that it decides by.
    pub(super) fn read(&self) -> Statement {
        stripes::read(self.stripe)
    }

    /// Learns from the answer to [`read`](Self::read), the first; what the change is told for a
    /// number.
    pub(super) fn answer_for_number(&mut self, answers: &[Vec<Row>]) -> Result<Vec<Row>> {
        let row = only(answers, 0)?;
        self.counted = (row.int(0)?, row.int(1)?);
        Ok(vec![Row(vec![LATE.into()])])
    }

    /// Its writes as they are sent: behind its place in its stripe, and with its number.
    pub(super) fn writes(&self, writes: Vec<Statement>) -> Vec<Statement> {
        let (own, all) = self.counted;
        let count = stripes::count_after(self.stripe, (own + self.before, all));
        std::iter::once(count).chain(writes.into_iter().map(|write| write.counted_back(self.after))).collect()
    }
}
