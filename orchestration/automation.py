"""What the daemon may ask for by itself: what has become stale, and nothing whose blocking checks have not passed."""

import dagster as dg

CONDITION = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


def automated(*assets: dg.AssetsDefinition) -> list[dg.AssetsDefinition]:
    """Return the assets with the automation condition of this project."""
    return [
        asset.map_asset_specs(lambda spec: spec.replace_attributes(automation_condition=CONDITION))
        for asset in assets
    ]


# Declared and off: switch it on in the UI under Automation. It acts on what is observed or materialised there.
automation_sensor = dg.AutomationConditionSensorDefinition(
    "re_audit_what_changed", target=dg.AssetSelection.all(), default_status=dg.DefaultSensorStatus.STOPPED
)
