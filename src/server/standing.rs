//! Replicas run as long as the server does. One that ends in an error is started again, after a rest.

use std::sync::Arc;
use std::time::Duration;

use super::House;
use crate::operations::replicas;

/// A replica waits out outages by itself; an error that ends it needs a person, and is tried again now and then.
const REST: Duration = Duration::from_secs(30);

pub async fn keep(house: Arc<House>) {
    let all: Vec<_> = house.config.replicas.keys().cloned().collect();
    let running = all.into_iter().map(|name| tokio::spawn(one(house.clone(), name)));
    for each in running.collect::<Vec<_>>() {
        // A panic inside one replica ends that replica only.
        drop(each.await);
    }
}

async fn one(house: Arc<House>, name: String) {
    loop {
        let ran = async {
            let engine = replicas::replica(&house.config, &name, house.clock.clone())?;
            Box::pin(engine.run(house.stopping())).await
        };
        match ran.await {
            Ok(_) if house.is_stopping() => return,
            Ok(_) => tracing::warn!(replica = name, "ended"),
            Err(error) => {
                tracing::error!(
                    replica = name,
                    kind = error.kind().name(),
                    remedy = error.remedy(),
                    "replica ended: {error}"
                );
            }
        }
        if !house.rest(REST).await {
            return;
        }
    }
}
