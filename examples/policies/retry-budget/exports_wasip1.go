package main

import sdk "github.com/dsh-agent/dsh/guests/sdk/go"

//go:wasmexport recover
func recoverFailure() int32 { return sdk.Recover(Decide) }

//go:wasmexport check_config
func checkConfig() int32 { return sdk.CheckConfig(CheckConfig) }

//go:wasmexport warm
func warm() int32 { return sdk.Warm() }
