"""Names of the stages of an evaluation, in order. The first ones are `mlir_passes.pipeline.STAGES`."""

REJECTING_STAGES = ("parse", "edit", "verify", "cleanup")
COMPILE_STAGES = (*REJECTING_STAGES, "partition", "compile", "plan")
RUN_STAGES = ("load", "check", "quality", "timing", "energy")
STAGES = (*COMPILE_STAGES, *RUN_STAGES)
