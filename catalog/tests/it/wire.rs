//! A wire between a client and the database that can be cut at the worst moment: around a commit.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What happens to the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not reach the database; both ends are closed.
    CutBefore,
    /// As [`Fault::CutBefore`], and nobody gets through until [`Wire::mend`].
    CutBeforeForGood,
    /// What travels before it reaches the database and is carried out, it does not; both ends are
    /// closed.
    CutAmid,
    /// It reaches the database and is carried out; the answer does not come back.
    CutAfter,
    /// As [`Fault::CutAfter`], and nobody gets through until [`Wire::mend`].
    CutAfterForGood,
    /// It stays on the way until the database has closed its end.
    Stall,
}

/// The wire. Dropping it cuts everything.
pub(crate) struct Wire {
    pub(crate) port: u16,
    state: Arc<State>,
    listener: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    next: Mutex<Option<Fault>>,
    closed: Mutex<bool>,
    struck: AtomicU32,
    journeys: AtomicU32,
}

impl Wire {
    pub(crate) async fn to(server: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                if !*shared.closed.lock().unwrap() {
                    tokio::spawn(carry(client, server, Arc::clone(&shared)));
                }
            }
        });
        Wire { port, state, listener }
    }

    /// Lets the next commit meet `fault`.
    pub(crate) fn arm(&self, fault: Fault) {
        *self.state.next.lock().unwrap() = Some(fault);
    }

    /// Lets new connections through again.
    pub(crate) fn mend(&self) {
        *self.state.closed.lock().unwrap() = false;
    }

    /// How often a client sent something after it had heard from the database: journeys there and
    /// back.
    pub(crate) fn journeys(&self) -> u32 {
        self.state.journeys.load(Ordering::SeqCst)
    }

    /// How many commits have met one.
    pub(crate) fn struck(&self) -> u32 {
        self.state.struck.load(Ordering::SeqCst)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn carry(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let heard = Arc::new(AtomicBool::new(true));
    let is_silent = Arc::new(AtomicBool::new(false));
    let back = tokio::spawn({
        let (heard, is_silent) = (Arc::clone(&heard), Arc::clone(&is_silent));
        async move {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                heard.store(true, Ordering::SeqCst);
                if is_silent.load(Ordering::SeqCst) {
                    continue;
                }
                if to_client.write_all(&bytes[..count]).await.is_err() {
                    break;
                }
            }
            from_server
        }
    });
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
        state.journeys.fetch_add(u32::from(heard.swap(false, Ordering::SeqCst)), Ordering::SeqCst);
        let commit = bytes[..count].windows(7).position(|window| window == b"COMMIT\0");
        let fault = if commit.is_some() { state.next.lock().unwrap().take() } else { None };
        let Some(fault) = fault else {
            if to_server.write_all(&bytes[..count]).await.is_err() {
                break;
            }
            continue;
        };
        *state.closed.lock().unwrap() = matches!(fault, Fault::CutBeforeForGood | Fault::CutAfterForGood);
        state.struck.fetch_add(1, Ordering::SeqCst);
        match fault {
            Fault::CutBefore | Fault::CutBeforeForGood => back.abort(),
            Fault::CutAmid => {
                back.abort();
                to_server.write_all(&bytes[..commit.unwrap()]).await.unwrap();
            }
            Fault::CutAfter | Fault::CutAfterForGood => {
                // Nothing comes back from here on; ending our side lets the server finish what it
                // has and close. What it says is taken, or it would not go on to the commit.
                is_silent.store(true, Ordering::SeqCst);
                to_server.write_all(&bytes[..count]).await.unwrap();
                drop(to_server);
                drop(back.await);
            }
            Fault::Stall => drop(back.await),
        }
        return;
    }
    back.abort();
}
