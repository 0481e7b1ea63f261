//! How the containers of a pod end together.

use serde_json::json;

use crate::{Node, is_ready, shell};

/// The hook of a sidecar runs while the others still do; its signal comes after their end.
pub(crate) async fn hooks_of_sidecars_run_at_once(node: &Node) {
    let folder = node.config.root_dir.join("hooks");
    let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
    let main = "trap 'while ! test -e /shared/hook; do sleep 1; done; echo > /shared/main; exit 0' TERM; \
                sleep 1000 & wait";
    let side = "trap 'test -e /shared/main && echo > /shared/side; exit 0' TERM; sleep 1000 & wait";
    let key = node
        .create(
            "hooked",
            json!({"terminationGracePeriodSeconds": 20,
                "initContainers": [{"name": "side", "restartPolicy": "Always", "command": shell(side),
                    "lifecycle": {"preStop": {"exec": {"command": shell("echo > /shared/hook")}}}, "volumeMounts": mounts}],
                "containers": [{"name": "main", "command": shell(main), "volumeMounts": mounts}],
                "volumes": [{"name": "shared", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}]}),
        )
        .await;
    node.api.until(&key, "ready", is_ready).await;
    node.delete(&key).await;
    let [hook, main, side] = ["hook", "main", "side"].map(|file| folder.join(file).exists());
    assert_eq!((hook, main, side), (true, true, true));
}
