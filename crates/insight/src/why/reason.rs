//! Every cause that `ferry why` knows, by name. Each has a section in `docs/why/`, which a test checks.

use super::Hop;

macro_rules! reasons {
    ($($page:literal { $($variant:ident $name:literal $hop:ident),* $(,)? })*) => {
        /// A cause. Its name is part of the JSON output and the heading of its section in `docs/why/`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $($($variant),*),* }

        impl Reason {
            pub const ALL: &'static [Self] = &[$($(Self::$variant),*),*];

            pub fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name),*),* }
            }

            /// The file of `docs/why/` that explains it, without its ending.
            pub fn page(self) -> &'static str {
                match self { $($(Self::$variant => $page),*),* }
            }

            /// Where on the way it stands.
            pub fn hop(self) -> Hop {
                match self { $($(Self::$variant => Hop::$hop),*),* }
            }
        }
    };
}

reasons! {
    "scheduling" {
        SchedulingGates "scheduling-gates" Scheduler,
        NoSuchScheduler "no-such-scheduler" Scheduler,
        SchedulerError "scheduler-error" Scheduler,
        NoNodes "no-nodes" Scheduler,
        NoNodeFits "no-node-fits" Scheduler,
        Preempting "preempting" Scheduler,
        ClaimMissing "claim-missing" Storage,
        DeviceClaim "device-claim" Scheduler,
    }
    "images" {
        ImageName "image-name" Kubelet,
        ImageNeverPulled "image-never-pulled" Kubelet,
        RegistryUnresolvable "registry-unresolvable" Kubelet,
        RegistryUnreachable "registry-unreachable" Kubelet,
        RegistryCertificate "registry-certificate" Kubelet,
        RegistryLimit "registry-limit" Kubelet,
        RegistryError "registry-error" Kubelet,
        PullSecretMissing "pull-secret-missing" Kubelet,
        PullUnauthorized "pull-unauthorized" Kubelet,
        ImageNotFound "image-not-found" Kubelet,
        ImagePlatform "image-platform" Kubelet,
        ImageDisk "image-disk" Kubelet,
        ImagePull "image-pull" Kubelet,
    }
    "containers" {
        ConfigMapMissing "configmap-missing" Kubelet,
        SecretMissing "secret-missing" Kubelet,
        KeyMissing "key-missing" Kubelet,
        RunAsRoot "run-as-root" Kubelet,
        CommandMissing "command-missing" Kubelet,
        ContainerConfiguration "container-configuration" Kubelet,
        HookFailed "hook-failed" Kubelet,
        Crash "crash" Kubelet,
        OutOfMemory "out-of-memory" Kubelet,
        ExitsAtOnce "exits-at-once" Kubelet,
        LivenessRestarts "liveness-restarts" Kubelet,
        InitRunning "init-running" Kubelet,
        InitWaitsForService "init-waits-for-service" Kubelet,
        Volume "volume" Kubelet,
        Sandbox "sandbox" Kubelet,
        Starting "starting" Kubelet,
        Evicted "evicted" Node,
        PodRejected "pod-rejected" Node,
        PodDeadline "pod-deadline" Kubelet,
        PodFailed "pod-failed" Kubelet,
        ProbeFails "probe-fails" Ready,
        ProbePending "probe-pending" Ready,
        ReadinessGate "readiness-gate" Ready,
        EphemeralContainer "ephemeral-container" Kubelet,
        PodResize "pod-resize" Kubelet,
    }
    "storage" {
        VolumeTooSmall "volume-too-small" Storage,
        VolumeReleased "volume-released" Storage,
        VolumeAccessMode "volume-access-mode" Storage,
        VolumeClass "volume-class" Storage,
        VolumeSelector "volume-selector" Storage,
        VolumeMode "volume-mode" Storage,
        VolumeTaken "volume-taken" Storage,
        VolumeMissing "volume-missing" Storage,
        VolumeNode "volume-node" Storage,
        NoVolume "no-volume" Storage,
        VolumeUnbound "volume-unbound" Storage,
        ClassUnseen "class-unseen" Storage,
        ClassMissing "class-missing" Storage,
        NoDefaultClass "no-default-class" Storage,
        WaitForFirstConsumer "wait-for-first-consumer" Storage,
        ProvisionerMissing "provisioner-missing" Storage,
        ProvisioningFailed "provisioning-failed" Storage,
        Provisioning "provisioning" Storage,
        ClaimLost "claim-lost" Storage,
        ClaimResizing "claim-resizing" Storage,
        DataSource "data-source" Storage,
        VolumeAttributes "volume-attributes" Storage,
        NotAttached "not-attached" Storage,
    }
    "workloads" {
        ControllerBehind "controller-behind" Controller,
        Paused "paused" Controller,
        ScaledToZero "scaled-to-zero" Controller,
        ProgressDeadline "progress-deadline" Controller,
        MinReadySeconds "min-ready-seconds" Controller,
        PodsMissing "pods-missing" Controller,
        NotOwned "not-owned" Controller,
        OnDelete "on-delete" Controller,
        Partition "partition" Controller,
        OldTemplate "old-template" Controller,
        OldPodsInTheWay "old-pods-in-the-way" Controller,
        ServiceMissing "service-missing" Controller,
        NoNodeForDaemon "no-node-for-daemon" Controller,
        NodesSkipped "nodes-skipped" Controller,
        QuotaUsedUp "quota-used-up" Admission,
        QuotaWantsResources "quota-wants-resources" Admission,
        LimitRange "limit-range" Admission,
        PodSecurity "pod-security" Admission,
        WebhookFails "webhook-fails" Admission,
        WebhookDenies "webhook-denies" Admission,
        PolicyDenies "policy-denies" Admission,
        ServiceAccountMissing "service-account-missing" Admission,
        PriorityClassMissing "priority-class-missing" Admission,
        RuntimeClassMissing "runtime-class-missing" Admission,
        PodRefused "pod-refused" Admission,
        ClaimRefused "claim-refused" Admission,
        SetRefused "set-refused" Admission,
        NameTooLong "name-too-long" Admission,
        NamespaceGoing "namespace-going" Admission,
        ControllerForbidden "controller-forbidden" Authorization,
    }
    "jobs" {
        BackoffLimit "backoff-limit" Controller,
        JobDeadline "job-deadline" Controller,
        PodFailurePolicy "pod-failure-policy" Controller,
        FailedIndexes "failed-indexes" Controller,
        JobFailed "job-failed" Controller,
        JobSuspended "job-suspended" Controller,
        JobManaged "job-managed" Controller,
        JobRunning "job-running" Controller,
        CronSuspended "cron-suspended" Controller,
        CronNeverFires "cron-never-fires" Controller,
        CronZone "cron-zone" Controller,
        CronForbid "cron-forbid" Controller,
        CronMissed "cron-missed" Controller,
        CronFailed "cron-failed" Controller,
        CronBehind "cron-behind" Controller,
        CronRefused "cron-refused" Admission,
        CronReplaces "cron-replaces" Controller,
    }
    "network" {
        NoSelector "no-selector" Endpoints,
        SliceNotReady "slice-not-ready" Endpoints,
        SlicePort "slice-port" Endpoints,
        SliceFamily "slice-family" Endpoints,
        SelectorMatchesNothing "selector-matches-nothing" Endpoints,
        PodsNotReady "pods-not-ready" Endpoints,
        NoReadyEndpoint "no-ready-endpoint" Endpoints,
        MakerHasNoPods "maker-has-no-pods" Endpoints,
        PortName "port-name" Endpoints,
        PortMismatch "port-mismatch" Endpoints,
        EndpointsLate "endpoints-late" Endpoints,
        ExternalNameAddress "external-name-address" Endpoints,
        ExternalNameMissing "external-name-missing" Endpoints,
        ExternalNameLoop "external-name-loop" Endpoints,
        ExternalNameShort "external-name-short" Endpoints,
        LoadBalancerClass "load-balancer-class" Endpoints,
        LoadBalancerPending "load-balancer-pending" Endpoints,
        LoadBalancerPort "load-balancer-port" Endpoints,
        PoliciesSelect "policies-select" Endpoints,
        PolicySelectsNothing "policy-selects-nothing" Endpoints,
        PolicyPeers "policy-peers" Endpoints,
        PolicyPorts "policy-ports" Endpoints,
        IngressClassUnset "ingress-class-unset" Endpoints,
        IngressClassMissing "ingress-class-missing" Endpoints,
        IngressBackendMissing "ingress-backend-missing" Endpoints,
        IngressBackendPort "ingress-backend-port" Endpoints,
        IngressBackend "ingress-backend" Endpoints,
        IngressNoPaths "ingress-no-paths" Endpoints,
        IngressSecret "ingress-secret" Endpoints,
        IngressTaken "ingress-taken" Endpoints,
        TlsCertificate "tls-certificate" Endpoints,
        IngressController "ingress-controller" Endpoints,
        PacketsDropped "packets-dropped" Node,
        IngressBackendResource "ingress-backend-resource" Endpoints,
        LocalTraffic "local-traffic" Endpoints,
    }
    "connections" {
        SourceNotRunning "source-not-running" Network,
        TargetMissing "target-missing" Network,
        DnsPolicy "dns-policy" Network,
        DnsNotServed "dns-not-served" Network,
        ServicePort "no-such-service-port" Network,
        ServiceLeadsNowhere "service-leads-nowhere" Network,
        NoLocalEndpoint "no-local-endpoint" Network,
        AddressFamily "address-family" Network,
        EgressPolicy "egress-policy" Network,
        IngressPolicy "ingress-policy" Network,
        NodeOnTheWay "node-on-the-way" Network,
        TargetNotRunning "target-not-running" Network,
    }
    "gateways" {
        GatewayClassMissing "gateway-class-missing" Endpoints,
        GatewayController "gateway-controller" Endpoints,
        GatewayRefused "gateway-refused" Endpoints,
        GatewayListener "gateway-listener" Endpoints,
        GatewayCertificate "gateway-certificate" Endpoints,
        GatewayNotProgrammed "gateway-not-programmed" Endpoints,
        GatewayNoRoutes "gateway-no-routes" Endpoints,
        RouteNoParent "route-no-parent" Endpoints,
        RouteParentMissing "route-parent-missing" Endpoints,
        RouteController "route-controller" Endpoints,
        RouteNotAttached "route-not-attached" Endpoints,
        RouteReferences "route-references" Endpoints,
        RouteBackendMissing "route-backend-missing" Endpoints,
        RouteBackendPort "route-backend-port" Endpoints,
        RouteBackend "route-backend" Endpoints,
        RouteGateway "route-gateway" Endpoints,
    }
    "nodes" {
        NodeLost "node-lost" Node,
        NodeNotReady "node-not-ready" Node,
        NodePressure "node-pressure" Node,
        NodeCordoned "node-cordoned" Node,
        NodeSilent "node-silent" Node,
        NodeJoining "node-joining" Node,
        NodeRemoved "node-removed" Node,
        NodeCertificate "node-certificate" Node,
        PodNodeMissing "pod-node-missing" Node,
        PodNodeNotReady "pod-node-not-ready" Node,
        DrainBlocked "drain-blocked" Node,
        NodeTaints "node-taints" Node,
        NodeUninitialized "node-uninitialized" Node,
    }
    "deletion" {
        FinalizerForeground "finalizer-foreground" Deletion,
        FinalizerClaimInUse "finalizer-claim-in-use" Deletion,
        FinalizerVolumeBound "finalizer-volume-bound" Deletion,
        FinalizerCustomResources "finalizer-custom-resources" Deletion,
        Finalizer "finalizer" Deletion,
        NamespaceTerminating "namespace-terminating" Deletion,
        GracePeriod "grace-period" Deletion,
        KubeletEndsNot "kubelet-ends-not" Deletion,
        NodeGoneForDeletion "node-gone" Deletion,
        BeingDeleted "being-deleted" Deletion,
        OwnerMissing "owner-missing" Deletion,
    }
    "others" {
        HpaTarget "hpa-target" Autoscaler,
        HpaMetrics "hpa-metrics" Autoscaler,
        HpaRequests "hpa-requests" Autoscaler,
        HpaAtMost "hpa-at-most" Autoscaler,
        HpaTargetZero "hpa-target-zero" Autoscaler,
        BudgetBlocks "budget-blocks" Controller,
        BudgetSelectsNothing "budget-selects-nothing" Controller,
        QuotaFull "quota-full" Admission,
        WebhookUnreachable "webhook-unreachable" Admission,
        ApiServiceUnavailable "api-service-unavailable" Admission,
        CertificateRequest "certificate-request" Controller,
        Condition "condition" Controller,
        NotServed "not-served" Admission,
        NamesTaken "names-taken" Controller,
        PullSecretOfAccount "pull-secret-of-account" Kubelet,
        ConversionWebhook "conversion-webhook" Admission,
        PolicyUnbound "policy-unbound" Admission,
        PolicyTypes "policy-types" Admission,
        PolicyMissing "policy-missing" Admission,
        BudgetsOverlap "budgets-overlap" Controller,
        BudgetSync "budget-sync" Controller,
        HpaFixed "hpa-fixed" Autoscaler,
        HpaBehavior "hpa-behavior" Autoscaler,
        PolicyParameters "policy-parameters" Admission,
        LeaseExpired "lease-expired" Controller,
    }
    "access" {
        RoleMissing "role-missing" Authorization,
        RoleRule "role-rule" Authorization,
        RoleVerb "role-verb" Authorization,
        RoleScope "role-scope" Authorization,
        RoleAggregatesNothing "role-aggregates-nothing" Authorization,
        SubjectMissing "subject-missing" Authorization,
        NoSubjects "no-subjects" Authorization,
    }
    "servers" {
        ServerNotReady "server-not-ready" Store,
        StoreFull "store-full" Store,
        StoreCorrupt "store-corrupt" Store,
        StoreUnreachable "store-unreachable" Store,
    }
}
