//! Accounts of replicas over one catalog: what one revoked, no answer of the database brings back.

use crate::{
    cluster::Cluster,
    running::{Running, open},
};
use deltaweir::auth::{
    Look,
    accounts::{NewKey, NewUser},
};
use s3_wire::sigv4::{CredentialStore as _, SecretKey};
use std::{sync::LazyLock, time::SystemTime};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

fn signs(running: &Running, key: &str) -> bool {
    Look::new(&running.accounts.users(), SystemTime::now()).secret(key, None).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_catalog_does_not_bring_a_key_back() {
    // C121
    let url = CLUSTER.url(&CLUSTER.schema().await);
    let store = tempfile::tempdir().unwrap();
    let kek = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let config = format!(
        "[storage]\ncatalog = \"{url}\"\nbackend = \"shared\"\nkek = \"{kek}\"\n[backends.shared]\ntype = \"local\"\npath = \"{}\"\n",
        store.path().join("blobs").display()
    );
    let one = Running::start_in(tempfile::tempdir().unwrap(), &config, open).await;
    let other = Running::start_in(tempfile::tempdir().unwrap(), &config, open).await;
    let key = NewKey { id: "AKANN".into(), secret: SecretKey::new("secret of ann") };
    let added = |directory: &mut deltaweir::auth::accounts::Directory| {
        directory.add_user("ann", NewUser::default(), Some(key.clone()), 1)
    };
    one.accounts.change(added).await.unwrap();
    assert!(signs(&one, "AKANN") && !signs(&other, "AKANN"), "the other has not asked yet");
    other.accounts.directory().await.unwrap();
    assert!(signs(&other, "AKANN"));

    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let row = client.query_one("SELECT sealed FROM accounts WHERE name = 'AKANN'", &[]).await.unwrap();
    let sealed: Vec<u8> = row.get(0);
    let version: i64 =
        client.query_one("SELECT value FROM counters WHERE name = 'accounts'", &[]).await.unwrap().get(0);
    assert!(!sealed.windows(13).any(|bytes| bytes == b"secret of ann"), "it is sealed");

    other.accounts.change(|directory| directory.enable_key("ann", "AKANN", false)).await.unwrap();
    assert!(!signs(&other, "AKANN"), "where it was revoked, at once");
    one.accounts.directory().await.unwrap();
    assert!(!signs(&one, "AKANN"));

    client.execute("UPDATE accounts SET sealed = $1 WHERE name = 'AKANN'", &[&sealed]).await.unwrap();
    client.execute("UPDATE counters SET value = $1 WHERE name = 'accounts'", &[&version]).await.unwrap();
    assert!(one.accounts.directory().await.is_err() && other.accounts.directory().await.is_err());
    assert!(!signs(&one, "AKANN") && !signs(&other, "AKANN"));
}
