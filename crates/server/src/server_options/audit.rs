//! Audit: its flags, and what they make.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use ferry_audit::{
    Auditor, Backend, BatchOptions, BatchedLog, Log, LogFormat, LogMode, LogOptions, Policy, Webhook, WebhookMode,
    WebhookOptions,
};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;

use super::{duration, read_document};
use crate::configuration;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Audit")]
pub struct AuditOptions {
    /// A file with an audit.k8s.io/v1 Policy: which requests are logged, and in how much detail.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// The audit log file, one JSON object per line. `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// The log format: json or legacy.
    #[arg(long, default_value = "json")]
    pub audit_log_format: String,
    /// How events are written: blocking, blocking-strict or batch.
    #[arg(long, default_value = "blocking")]
    pub audit_log_mode: String,
    /// How many days to keep rotated files. 0 keeps them forever.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u32,
    /// How many rotated files to keep. 0 keeps all.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// The size in megabytes at which a file is rotated. 0 means 100.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxsize: u64,
    /// With batch: the size of the buffer in events. More are dropped.
    #[arg(long, default_value_t = 10_000)]
    pub audit_log_batch_buffer_size: usize,
    /// The maximum number of events in a batch.
    #[arg(long, default_value_t = 1)]
    pub audit_log_batch_max_size: usize,
    /// How long to wait before a batch that is not full is written.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub audit_log_batch_max_wait: Duration,
    /// Whether to throttle batches.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    pub audit_log_batch_throttle_enable: bool,
    /// The average number of batches per second.
    #[arg(long, default_value_t = 0.0)]
    pub audit_log_batch_throttle_qps: f64,
    /// The maximum number of batches in a burst.
    #[arg(long, default_value_t = 0)]
    pub audit_log_batch_throttle_burst: usize,
    /// A kubeconfig of the audit webhook.
    #[arg(long, value_name = "KUBECONFIG")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How events are sent: batch, blocking or blocking-strict.
    #[arg(long, default_value = "batch")]
    pub audit_webhook_mode: String,
    /// The size of the buffer in events. More are dropped.
    #[arg(long, default_value_t = 10_000)]
    pub audit_webhook_batch_buffer_size: usize,
    /// The maximum number of events in a batch.
    #[arg(long, default_value_t = 400)]
    pub audit_webhook_batch_max_size: usize,
    /// How long to wait before a batch that is not full is sent, such as 30s or 500ms.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Whether to throttle batches.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub audit_webhook_batch_throttle_enable: bool,
    /// The average number of batches per second.
    #[arg(long, default_value_t = 10.0)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// The maximum number of batches in a burst.
    #[arg(long, default_value_t = 15)]
    pub audit_webhook_batch_throttle_burst: usize,
    /// The delay before a failed batch is sent again.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub audit_webhook_initial_backoff: Duration,
}

/// None where nothing is to be written down.
pub fn auditor(options: &AuditOptions, tasks: &Tasks) -> Result<Option<Arc<Auditor>>> {
    let Some(policy_file) = &options.audit_policy_file else {
        if options.audit_log_path.is_some() || options.audit_webhook_config_file.is_some() {
            tracing::warn!("no audit policy file was given: no events will be recorded");
        }
        return Ok(None);
    };
    let policy = Policy::parse(configuration::read(policy_file, "Policy")?)
        .with_context(|| policy_file.display().to_string())?;
    let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
    if let Some(path) = &options.audit_log_path {
        let log = Log::open(LogOptions {
            path: path.clone(),
            format: match &*options.audit_log_format {
                "json" => LogFormat::Json,
                "legacy" => LogFormat::Legacy,
                other => bail!("--audit-log-format {other:?} is unknown; it is json or legacy"),
            },
            mode: match &*options.audit_log_mode {
                "blocking" | "batch" => LogMode::Blocking,
                "blocking-strict" => LogMode::BlockingStrict,
                other => bail!("--audit-log-mode {other:?} is unknown; it is batch, blocking or blocking-strict"),
            },
            max_age_days: options.audit_log_maxage,
            max_backups: options.audit_log_maxbackup,
            max_megabytes: options.audit_log_maxsize,
        });
        let log = log.with_context(|| format!("cannot open the audit log {}", path.display()))?;
        let backend: Arc<dyn Backend> = if options.audit_log_mode == "batch" {
            let rate = (options.audit_log_batch_throttle_qps, options.audit_log_batch_throttle_burst);
            let batch = BatchOptions {
                buffer: options.audit_log_batch_buffer_size,
                max_batch: options.audit_log_batch_max_size.max(1),
                max_wait: options.audit_log_batch_max_wait,
                rate: options.audit_log_batch_throttle_enable.then_some(rate),
            };
            Arc::new(BatchedLog::start(log, batch, tasks))
        } else {
            Arc::new(log)
        };
        backends.push(backend);
    }
    if let Some(path) = &options.audit_webhook_config_file {
        let remote = Remote::from_kubeconfig(&read_document(path)?, path, tasks)
            .map_err(|why| anyhow!("{}: {why}", path.display()))?;
        let rate = (options.audit_webhook_batch_throttle_qps, options.audit_webhook_batch_throttle_burst);
        let webhook = WebhookOptions {
            mode: match &*options.audit_webhook_mode {
                "batch" => WebhookMode::Batch,
                "blocking" => WebhookMode::Blocking,
                "blocking-strict" => WebhookMode::BlockingStrict,
                other => bail!("--audit-webhook-mode {other:?} is unknown; it is batch, blocking or blocking-strict"),
            },
            buffer: options.audit_webhook_batch_buffer_size,
            max_batch: options.audit_webhook_batch_max_size.max(1),
            max_wait: options.audit_webhook_batch_max_wait,
            rate: options.audit_webhook_batch_throttle_enable.then_some(rate),
            first_pause: options.audit_webhook_initial_backoff,
        };
        backends.push(Arc::new(Webhook::start(remote, webhook, tasks)));
    }
    Ok(Some(Arc::new(Auditor::new(policy, backends))))
}
