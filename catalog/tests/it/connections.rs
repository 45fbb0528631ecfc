//! A database that allows fewer connections than a process would make.

use crate::postgres::{CLUSTER, open_with};
use catalog::{Catalog as _, PostgresOptions, conformance::desk::Desk};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Idle readers give way: nobody else would let the writer in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_gets_a_connection_though_readers_hold_all_that_the_database_allows() {
    let schema = CLUSTER.schema().await;
    let (client, role) = (CLUSTER.client("public").await, format!("few_{schema}"));
    let make = format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 3; ALTER SCHEMA {schema} OWNER TO {role}");
    client.batch_execute(&make).await.unwrap();
    let url = CLUSTER.url(&schema).replace("//postgres@", &format!("//{role}@"));
    let options = PostgresOptions { readers_max: 8, ..PostgresOptions::default() };
    let desk = Desk::new(Arc::new(open_with(&url, options).await)).await;
    desk.put("before").await;
    let of_role = format!("FROM pg_stat_activity WHERE usename = '{role}'");
    client.batch_execute(&format!("SELECT pg_terminate_backend(pid) {of_role}")).await.unwrap();
    loop {
        let mut reading = JoinSet::new();
        for _ in 0..8 {
            let desk = desk.clone();
            reading.spawn(async move { desk.catalog.current(desk.bucket.id, "before").await.unwrap() });
        }
        reading.join_all().await;
        let open: i64 = client.query_one(&format!("SELECT count(*) {of_role}"), &[]).await.unwrap().get(0);
        if open == 3 {
            break;
        }
    }
    desk.put("after").await;
    desk.assert_sound().await;
}
