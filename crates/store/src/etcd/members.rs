//! The members of an etcd cluster: who they are, and how one comes and goes.

use std::time::Duration;

use tonic::{Code, Response};

use super::api::rpc::alarm_request::AlarmAction;
use super::api::rpc::{
    AlarmRequest, AlarmType, LeaseGrantRequest, LeaseRevokeRequest, Member, MemberAddRequest, MemberListRequest,
    MemberPromoteRequest, MemberRemoveRequest, RangeRequest, StatusRequest, StatusResponse,
};
use super::api::{Client, describe, was_not_sent};
use super::call::Repeat;
use super::connection::Connection;
use super::{EtcdOptions, EtcdTls};
use crate::{Result, StoreError};

/// How long one member is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where the member has to ask others.
const QUORUM_PATIENCE: Duration = Duration::from_secs(5);

/// Asks whichever member answers.
pub struct Members {
    connection: Connection,
}

impl Members {
    /// Sends nothing yet.
    pub fn new(options: &EtcdOptions) -> Result<Self> {
        Ok(Self { connection: Connection::new(options)? })
    }

    /// All of them. etcd before 3.5 answers from what the member that is asked has.
    pub async fn list(&self) -> Result<Vec<Member>> {
        self.listed(true).await
    }

    /// Those that the member which is asked knows: told without a quorum, too.
    pub async fn known(&self) -> Result<Vec<Member>> {
        self.listed(false).await
    }

    async fn listed(&self, linearizable: bool) -> Result<Vec<Member>> {
        let request = MemberListRequest { linearizable };
        let send = |client: Client| async move { client.cluster().member_list(request).await };
        Ok(self.connection.call(Repeat::Always, send).await?.into_inner().members)
    }

    /// How long etcd takes to keep something: most members have it on their disks then. What is written is a lease that ends with this,
    /// so that no revision is taken.
    pub async fn write_time(&self) -> Result<Duration> {
        let begin = tokio::time::Instant::now();
        let grant = |client: Client| async move {
            client.lease().lease_grant(LeaseGrantRequest { ttl: 60, id: 0 }).await.map(Response::into_inner)
        };
        let id = self.connection.call(Repeat::Unsent, grant).await?.id;
        let taken = begin.elapsed();
        let revoke = |client: Client| async move { client.lease().lease_revoke(LeaseRevokeRequest { id }).await };
        self.connection.call(Repeat::Unsent, revoke).await.map(|_| taken)
    }

    /// Adds one that receives everything and votes on nothing until it is promoted. etcd takes one at a time.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Member> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        let send = |client: Client| {
            let request = request.clone();
            async move { client.cluster().member_add(request).await.map(Response::into_inner) }
        };
        let added = self.connection.call(Repeat::Unsent, send).await?.member;
        added.ok_or_else(|| StoreError::Unavailable("etcd added a member and does not tell which".into()))
    }

    /// Refused until it has caught up.
    pub async fn promote(&self, id: u64) -> Result<()> {
        let send = |client: Client| async move { client.cluster().member_promote(MemberPromoteRequest { id }).await };
        self.connection.call(Repeat::Unsent, send).await.map(drop)
    }

    /// Refused where the others could not go on without it.
    pub async fn remove(&self, id: u64) -> Result<()> {
        let send = |client: Client| async move { client.cluster().member_remove(MemberRemoveRequest { id }).await };
        self.connection.call(Repeat::Unsent, send).await.map(drop)
    }

    /// Takes back the alarm that there is no space. Raised again with the next write where there is none.
    pub async fn disarm(&self, id: u64) -> Result<()> {
        let request =
            AlarmRequest { action: AlarmAction::Deactivate.into(), member_id: id, alarm: AlarmType::Nospace.into() };
        let send = |client: Client| async move { client.maintenance().alarm(request).await };
        self.connection.call(Repeat::Always, send).await.map(drop)
    }

    /// The alarms of all members: the id of each and the alarm's name.
    pub async fn alarms(&self) -> Result<Vec<(u64, String)>> {
        let send = |client: Client| async move { client.maintenance().alarm(AlarmRequest::default()).await };
        let answer = self.connection.call(Repeat::Always, send).await?.into_inner();
        let raised = answer.alarms.iter().filter(|alarm| alarm.alarm != AlarmType::None as i32);
        let name = |alarm| AlarmType::try_from(alarm).map_or("unknown", |alarm| alarm.as_str_name()).to_owned();
        Ok(raised.map(|member| (member.member_id, name(member.alarm))).collect())
    }
}

/// How one member is, asked of itself. Answered without a leader, too.
pub async fn member_status(endpoint: &str, tls: Option<&EtcdTls>) -> Result<StatusResponse> {
    let client = Client::new(endpoint, tls)?;
    let mut maintenance = client.maintenance();
    match tokio::time::timeout(PATIENCE, maintenance.status(StatusRequest {})).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(StoreError::Unavailable(format!("etcd: {}", describe(&status)))),
        Err(_) => Err(StoreError::Unavailable(format!("etcd did not answer within {PATIENCE:?}"))),
    }
}

/// Whether one member has most of the others behind it: it answers a linearizable read then, and no other. False as well where
/// it cannot be reached, says nothing in time, or has no leader.
///
/// # Errors
/// When it is there and refuses to answer.
pub async fn has_quorum(endpoint: &str, tls: Option<&EtcdTls>) -> Result<bool> {
    let client = Client::new(endpoint, tls)?;
    let request = RangeRequest { key: vec![0], count_only: true, ..RangeRequest::default() };
    match tokio::time::timeout(QUORUM_PATIENCE, client.kv().range(request)).await {
        Ok(Ok(_)) => Ok(true),
        Err(_) => Ok(false),
        Ok(Err(status)) => {
            let away = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
            if away || was_not_sent(&status) {
                return Ok(false);
            }
            Err(StoreError::Unavailable(format!("etcd: {}", describe(&status))))
        }
    }
}
