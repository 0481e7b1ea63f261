//! What a plug-in tells of its devices, at a pace that the node can follow: every change is written to disk and to the Node.

use std::time::Duration;

use ferry_plugins::Status;
use ferry_plugins::deviceplugin::{Device, ListAndWatchResponse};
use futures::{Stream, StreamExt};
use tokio::time::Instant;

/// What is told after a silence counts at once. Of what follows within this time only the last does.
const PACE: Duration = Duration::from_secs(1);

pub(super) struct Paced<S> {
    told: S,
    pace: Duration,
    last: Option<Instant>,
    ended: Option<String>,
}

impl<S: Stream<Item = Result<ListAndWatchResponse, Status>> + Unpin> Paced<S> {
    pub(super) fn new(told: S) -> Self {
        Self { told, pace: PACE, last: None, ended: None }
    }

    /// The devices there are now, or why nothing comes any more.
    pub(super) async fn next(&mut self) -> Result<Vec<Device>, String> {
        let mut devices = self.read().await?;
        if let Some(until) = self.last.map(|last| last + self.pace) {
            // The time is looked at, too: where there is always more to read, nobody waits.
            while self.ended.is_none() && Instant::now() < until {
                match tokio::time::timeout_at(until, self.read()).await {
                    Ok(Ok(newer)) => devices = newer,
                    Ok(Err(why)) => self.ended = Some(why),
                    Err(_) => break,
                }
            }
        }
        self.last = Some(Instant::now());
        Ok(devices)
    }

    async fn read(&mut self) -> Result<Vec<Device>, String> {
        if let Some(why) = &self.ended {
            return Err(why.clone());
        }
        match self.told.next().await {
            Some(Ok(message)) => Ok(message.devices),
            Some(Err(status)) => Err(status.message().to_owned()),
            None => Err("it has no more to tell".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(id: usize) -> Result<ListAndWatchResponse, Status> {
        let device = Device { id: id.to_string(), ..Default::default() };
        Ok(ListAndWatchResponse { devices: vec![device] })
    }

    #[tokio::test]
    async fn of_a_flood_the_first_and_the_last_count() {
        let mut paced = Paced::new(futures::stream::iter((0..1000).map(told)));
        paced.pace = Duration::from_secs(3600);
        let mut ids = Vec::new();
        let why = loop {
            match paced.next().await {
                Ok(devices) => ids.push(devices[0].id.clone()),
                Err(why) => break why,
            }
        };
        assert_eq!((ids, why.as_str()), (vec!["0".to_owned(), "999".to_owned()], "it has no more to tell"));
    }

    #[tokio::test]
    async fn a_flood_without_end_is_heard_all_the_same() {
        let mut paced = Paced::new(futures::stream::iter((0..).map(told)));
        paced.pace = Duration::from_millis(5);
        for _ in 0..3 {
            assert_eq!(paced.next().await.map(|devices| devices.len()), Ok(1));
        }
    }
}
