-- LÖVE's settings for the pond: a window four times as large as its grid, and no module that it does not use.
function love.conf(t)
  t.identity = "moonferry-pond"
  t.window.title, t.window.width, t.window.height = "Moonferry's pond", 800, 600
  t.modules.audio, t.modules.sound, t.modules.physics, t.modules.joystick = false, false, false, false
end
